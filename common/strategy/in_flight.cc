// GraphPipe appendix A.1 and algorithm 2: how many samples a stage keeps in flight.
#include <algorithm>

#include "common/strategy/strategy.h"

namespace stagewright {

int64_t ComputeInFlight(int64_t k_x, int64_t b_x, int64_t k_y, int64_t b_y, int64_t i_y) {
  const int64_t x = k_x * b_x;  // Samples in one round of S_x,
  const int64_t y = k_y * b_y;  // and of S_y.
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

void AssignInFlight(Strategy& strategy) {
  std::vector<StageEdge> edges = strategy.edges;
  std::sort(edges.begin(), edges.end());
  auto edge = edges.rbegin();
  for (int64_t s = static_cast<int64_t>(strategy.stages.size()) - 1; s >= 0; --s) {
    Stage& stage = strategy.stages[s];
    const int64_t own = stage.schedule.k * stage.micro_batch;
    int64_t in_flight = own;
    for (; edge != edges.rend() && edge->from.value() == s; ++edge) {
      const Stage& next = strategy.stages[edge->to.index()];
      in_flight =
          std::max(in_flight, ComputeInFlight(stage.schedule.k, stage.micro_batch, next.schedule.k,
                                              next.micro_batch, next.schedule.in_flight));
    }
    // Unequal k leave a rest that is not a whole micro-batch.
    const int64_t micro_batches = (in_flight + stage.micro_batch - 1) / stage.micro_batch;
    stage.schedule.in_flight = std::min(micro_batches * stage.micro_batch, strategy.mini_batch);
  }
}

}  // namespace stagewright
