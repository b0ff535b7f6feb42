// Whether a range of operators can be a stage: its time per sample and its memory.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/models/stage_oracle.h"
#include "planner_service/planners/graphpipe/recurrence/partition.h"
#include "planner_service/planners/graphpipe/recurrence/relaxed_search.h"
#include "planner_service/planners/graphpipe/recurrence/stage_ranges.h"

namespace stagewright {

class StageFit {
 public:
  // Arguments outlive the object. `messages`: what those of a stage cost.
  StageFit(const StageRanges& ranges, const RelaxedSearch& relaxed, Messages messages);

  // ns per sample of [begin, end) with `replicas` replicas: compute, its share of the gradient sum,
  // and no less than its messages take on the fastest link.
  double StageTps(int32_t begin, int32_t end, int32_t replicas, const StageConfig& config,
                  bool recompute) const;

  // The time per sample that options have to meet from now on.
  void Aim(double t) { t_ = t; }
  double t() const { return t_; }

  bool Meets(const StageOption& option, const StageRanges::Range& range, int32_t end);

  Bytes Memory(const StageOption& option, const StageRanges::Range& range, int32_t end,
               int64_t micro_batches_in_flight) const;

  // The first option of a config, of those with at most so many replicas, that meets t and may fit
  // into memory; -1: none. `fastest` is the first whose compute alone may meet t, and only moves on
  // while the range grows.
  int32_t First(const StageRanges::Range& range, int32_t end, int32_t config, int32_t most_replicas,
                int32_t& fastest);

  // Whether a stage met t that would not with Messages::kNetwork, since this was last set.
  bool messages_matter() const { return messages_matter_; }
  void set_messages_matter(bool matter) { messages_matter_ = matter; }

 private:
  // What crosses the network for a stage with 2^index replicas.
  struct Network {
    double sum_latency = 0;       // Gradient sum, ns.
    double sum_per_byte = 0;      // Gradient sum, ns per byte.
    double message_per_byte = 0;  // Messages that overlap with compute, ns per byte.
    double exposed_per_byte = 0;  // Messages that do not overlap, ns per byte.
    double network_per_byte = 0;  // What overlaps with Messages::kNetwork, ns per byte.
  };
  const Network& NetworkOf(int32_t replicas) const;
  double Tps(const StageOracle::Extent& extent, double compute, int32_t replicas) const;

  const StageOracle* oracle_;
  const RelaxedSearch* relaxed_;
  int64_t mini_batch_;
  std::vector<Network> networks_;
  double t_ = 0;
  bool messages_matter_ = false;
};

}  // namespace stagewright
