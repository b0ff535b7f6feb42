#include "common/strategy/in_flight.h"

#include <algorithm>

namespace stagewright {

int64_t ComputeInFlight(int64_t k_x, int64_t b_x, int64_t k_y, int64_t b_y, int64_t i_y) {
  const int64_t x = k_x * b_x;  // Samples in one round of S_x.
  const int64_t y = k_y * b_y;  // Samples in one round of S_y.
  const int64_t larger = std::max(b_x, b_y);
  if (larger < x && x < y) return i_y + 2 * larger;
  if (larger == x && x < y) return i_y + larger;
  if (b_x <= b_y && b_y < y && y < x) return i_y + x - y + 2 * b_y;
  if (b_x <= b_y && b_y == y && y < x) return i_y + x;
  if (b_y <= b_x && b_x < y && y < x) return i_y + x - y + 2 * b_x;
  if (b_y <= b_x && b_x == y && y < x) return i_y + x;
  if (larger == y && y == x) return i_y + y;
  if (larger < y && y == x) return i_y + 2 * larger;
  if (x < b_y) return i_y + b_y;  // b_x <= x < b_y <= y
  return i_y + x - y + b_x;       // b_y <= y < b_x <= x
}

std::vector<int64_t> SamplesInFlight(std::span<const StageRound> stages,
                                     std::span<const StageEdge> edges, int64_t mini_batch) {
  std::vector<int64_t> samples(stages.size(), 0);
  auto edge = edges.rbegin();
  for (int64_t s = std::ssize(stages) - 1; s >= 0; --s) {
    const auto& [micro_batch, k] = stages[s];
    int64_t in_flight = k * micro_batch;
    for (; edge != edges.rend() && edge->from.value() == s; ++edge) {
      const StageRound& next = stages[edge->to.index()];
      in_flight = std::max(in_flight, ComputeInFlight(k, micro_batch, next.k, next.micro_batch,
                                                      samples[edge->to.index()]));
    }
    // Unequal k leave a rest that is not a whole micro-batch.
    const int64_t micro_batches = (in_flight + micro_batch - 1) / micro_batch;
    samples[s] = std::min(micro_batches * micro_batch, mini_batch);
  }
  return samples;
}

void AssignInFlight(Strategy& strategy) {
  std::vector<StageEdge> edges = strategy.edges;
  std::sort(edges.begin(), edges.end());
  std::vector<StageRound> rounds;
  for (const Stage& stage : strategy.stages)
    rounds.push_back({stage.micro_batch, stage.schedule.k});
  const std::vector<int64_t> samples = SamplesInFlight(rounds, edges, strategy.mini_batch);
  for (size_t s = 0; s < samples.size(); ++s) strategy.stages[s].schedule.in_flight = samples[s];
}

}  // namespace stagewright
