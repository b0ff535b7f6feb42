// What the partition search is asked and what it answers.
#pragma once

#include <cstdint>
#include <vector>

#include "planner_service/planner/planner.h"
#include "planner_service/planners/graphpipe/recurrence/need_rows.h"

namespace stagewright {

struct StageChoice {
  int32_t begin = 0;  // Positions of the linear order.
  int32_t end = 0;
  int32_t replicas = 1;
  StageConfig config;
  int64_t in_flight = 0;  // Samples.
  bool recompute = false;
};

struct Partition {
  std::vector<StageChoice> stages;  // By position.
  int32_t devices = 0;
  double bottleneck = 0;  // Largest StageTps, ns per sample.
  int64_t deepest = 0;    // Most samples in flight in any stage.
};

// What a stage's messages cost, ascending.
enum class Messages {
  kInside,   // They overlap with compute and take the fastest links.
  kNetwork,  // They overlap, but pass the network, with a port per replica as far as nodes go.
  kExposed,  // They pass the network, and nothing overlaps with them.
};

struct PartitionOptions {
  bool replicas = true;
  RecomputePolicy recompute = RecomputePolicy::kNever;
  int32_t max_stages = 0;     // 0: any number.
  bool exact_stages = false;  // Exactly max_stages.
  double memory_share = 1;    // The share of the smallest memory budget that a stage may take.
  Messages messages = Messages::kInside;
  // allowed[begin * (n + 1) + end]: the ranges that may be a stage; empty: all.
  std::vector<bool> allowed;
  // `operators`: how many the order has.
  bool Allows(int32_t begin, int32_t end, int32_t operators) const {
    return allowed.empty() || allowed[begin * (operators + 1) + end];
  }
};

// What one call of Find may use.
struct PartitionLimits {
  int32_t devices = 1;
  int64_t in_flight = 0;  // Samples in any stage.
};

}  // namespace stagewright
