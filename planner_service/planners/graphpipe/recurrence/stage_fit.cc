#include "planner_service/planners/graphpipe/recurrence/stage_fit.h"

#include <algorithm>
#include <bit>

namespace stagewright {

StageFit::StageFit(const StageRanges& ranges, const RelaxedSearch& relaxed, Messages messages)
    : oracle_(&ranges.oracle()),
      relaxed_(&relaxed),
      mini_batch_(ranges.oracle().problem().mini_batch) {
  const NetworkFacts& facts = ranges.network();
  for (size_t i = 0; i < facts.sums.size(); ++i) {
    const int32_t replicas = 1 << i;
    Network network;
    network.sum_latency = facts.sums[i].latency;
    network.sum_per_byte = facts.sums[i].per_byte;
    if (facts.fastest > 0) {
      const int32_t packed = (replicas + facts.node_size - 1) / facts.node_size;
      const int32_t ports = std::min(replicas, facts.nodes);
      network.network_per_byte = 1 / (facts.slowest * std::max(ports, packed));
      network.message_per_byte =
          messages == Messages::kInside ? 1 / (facts.fastest * replicas) : network.network_per_byte;
      if (messages == Messages::kExposed) network.exposed_per_byte = 1 / (facts.slowest * packed);
    }
    networks_.push_back(network);
  }
}

const StageFit::Network& StageFit::NetworkOf(int32_t replicas) const {
  return networks_[std::bit_width(static_cast<uint32_t>(replicas)) - 1];
}

double StageFit::Tps(const StageOracle::Extent& extent, double compute, int32_t replicas) const {
  const Network& network = NetworkOf(replicas);
  double sum = 0;
  if (replicas > 1 && extent.gradients > 0) {
    sum = (network.sum_latency + network.sum_per_byte * static_cast<double>(extent.gradients)) /
          static_cast<double>(mini_batch_);
  }
  const double message = std::max(extent.in_per_sample, extent.out_per_sample);
  return std::max(compute + sum + message * network.exposed_per_byte,
                  message * network.message_per_byte);
}

double StageFit::StageTps(int32_t begin, int32_t end, int32_t replicas, const StageConfig& config,
                          bool recompute) const {
  const ShareCosts& share = oracle_->Share(config.micro_batch / replicas);
  const double time = share.Time(begin, end) + (recompute ? share.Forward(begin, end) : 0);
  return Tps(oracle_->At(begin, end), time / static_cast<double>(config.micro_batch), replicas);
}

bool StageFit::Meets(const StageOption& option, const StageRanges::Range& range, int32_t end) {
  const double compute = option.Compute(range.begin, end);
  if (compute > t_) return false;
  if (Tps(range.extent, compute, option.replicas) > t_) return false;
  const double message = std::max(range.extent.in_per_sample, range.extent.out_per_sample);
  if (message * NetworkOf(option.replicas).network_per_byte > t_) messages_matter_ = true;
  return true;
}

Bytes StageFit::Memory(const StageOption& option, const StageRanges::Range& range, int32_t end,
                       int64_t micro_batches_in_flight) const {
  const StageOracle::Flow flow{option.share, micro_batches_in_flight, option.micro_batches,
                               option.recompute, option.replicas};
  return StageOracle::Memory(range.extent, option.costs->Saved(range.begin, end),
                             option.costs->Workspace(range.begin, end), flow);
}

int32_t StageFit::First(const StageRanges::Range& range, int32_t end, int32_t config,
                        int32_t most_replicas, int32_t& fastest) {
  const std::vector<StageOption>& options = relaxed_->options();
  const int32_t last = relaxed_->option_ends()[config];
  while (fastest < last && options[fastest].Compute(range.begin, end) > t_) ++fastest;
  for (int32_t o = fastest; o < last; ++o) {
    const StageOption& option = options[o];
    if (option.replicas > most_replicas) return -1;
    if (!Meets(option, range, end)) continue;
    if (Memory(option, range, end, relaxed_->configs()[config].k) <= relaxed_->memory()) return o;
  }
  return -1;
}

}  // namespace stagewright
