// What a planner decides: stages S_i = <G_i, b_i, D_i, Pi_i> and their graph, as in GraphPipe
// section 3.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/sample_range.h"
#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/graph/operator_split.h"
#include "common/strategy/batch_statistics.h"
#include "common/topology/cluster.h"
#include "common/training/optimizer_sharding.h"

namespace stagewright {

// Pi_i as parameters of a kFkB schedule: run forwards until `in_flight` samples are in flight, then
// alternate k backward and k forward micro-batches.
struct StageSchedule {
  int64_t in_flight = 0;  // Samples whose forward is done before the first backward, over all
                          // replicas: a multiple of the micro-batch, at least k micro-batches
                          // (fewer only if the mini-batch has fewer).
  int32_t k = 1;
  friend bool operator==(const StageSchedule&, const StageSchedule&) = default;
};

struct Stage {
  std::vector<NodeId> nodes;  // G_i: own nodes, topological order.
  // Constant nodes recomputed here (see OperatorGraph), topological order.
  std::vector<NodeId> replicated;
  // b_i: samples per micro-batch over all replicas; divides the mini-batch.
  int64_t micro_batch = 1;
  // D_i: replica r runs the r-th contiguous share of each micro-batch.
  std::vector<DeviceId> devices;
  StageSchedule schedule;  // Pi_i
  // The forward pass is run again before the backward pass instead of keeping its tensors.
  bool recompute = false;
};

enum class StrategyKind { kGraph, kSequential };  // GPP, SPP

// One unit of a device's compute order.
enum class Pass : uint8_t {
  kForward,
  kRecompute,  // The forward pass again, for the backward pass that follows it.
  kBackward,   // The whole backward pass.
  // The input half: gradients of the stage's inputs, which predecessors wait for.
  kBackwardInput,
  // The weight half: gradients of its parameters, which only the optimizer step waits for.
  kBackwardWeight,
};

struct ComputeStep {
  StageId stage;
  Pass pass = Pass::kForward;
  int64_t index = 0;  // The micro-batch's, among those of its stage; the device runs its share.
  friend auto operator<=>(const ComputeStep&, const ComputeStep&) = default;
};
inline constexpr Pass kLastPass = Pass::kBackwardWeight;

// What a device computes in one step, in order.
struct DeviceOrder {
  DeviceId device;
  std::vector<ComputeStep> steps;
  friend bool operator==(const DeviceOrder&, const DeviceOrder&) = default;
};

// An edge of the stage graph. Every data dependency between two stages is an edge (C2); a
// sequential strategy also chains its stages, and a chain edge without data carries an empty
// message.
struct StageEdge {
  StageId from;
  StageId to;
  friend auto operator<=>(const StageEdge&, const StageEdge&) = default;
};

struct Strategy {
  StrategyKind kind = StrategyKind::kGraph;
  int64_t mini_batch = 1;
  std::vector<Stage> stages;     // Topological order of the stage graph.
  std::vector<StageEdge> edges;  // Sorted, unique.
  // Explicit compute orders of all devices in use, by device id; they hold for every schedule that
  // is not kFkB (common/policies/policies.h). Empty: each stage follows its StageSchedule.
  std::vector<DeviceOrder> orders;
  // PipeDream's asynchronous 1F1B: the pipeline is never flushed, weights are updated after every
  // micro-batch's backward pass, and a stage keeps one version of its weights for each of its
  // in-flight micro-batches. One micro-batch size, k = 1, one stage per device, no explicit orders.
  bool asynchronous = false;
  // Asynchronous: all stages use the same version of the weights for one micro-batch, that of the
  // stages with most samples in flight (PipeDream section 3.3, vertical sync).
  bool vertical_sync = false;
  // What C4 holds stages to whose nodes depend on which samples share a forward pass.
  BatchStatistics batch_statistics = BatchStatistics::kWhole;
  // About so many bytes of a stage's gradients are summed over its replicas at a time, while the
  // last backward pass makes others. 0: what suits the links between them (gradient_buckets.h); the
  // gradients of a stage, or more: one sum after that pass.
  Bytes bucket_bytes = 0;
  // Whether replicas share out the optimizer's state; synchronous strategies only may.
  OptimizerSharding optimizer_sharding = OptimizerSharding::kNone;
  // The operators of the problem's graph that are cut in parallel parts (common/rewrite). Nodes in
  // `stages` are those of the graph that comes out; whoever has that graph need not look here.
  std::vector<OperatorSplit> splits;
};

// The share of samples [0, micro_batch) of a micro-batch that replica r of n runs: as even as
// possible, the first shares larger by one.
SampleRange ReplicaShare(SampleRange micro_batch, int32_t replica, int32_t replicas);

// Every share of a micro-batch by `replicas` is within the bounds.
bool SharesWithin(const SampleBounds& bounds, int64_t micro_batch, int64_t replicas);

// The stage that owns each node; the invalid id where none does (replicated nodes). O(nodes).
std::vector<StageId> StageOwners(const Graph& graph, const std::vector<Stage>& stages);

// The stage graph; INVALID_ARGUMENT if `edges` has a cycle (names the stages).
absl::StatusOr<Dag> StageGraph(const Strategy& strategy);

// The pairs of stages between which a tensor flows (sorted, unique), from the nodes' arguments.
std::vector<StageEdge> DataEdges(const Graph& graph, const std::vector<Stage>& stages);

// Tensors that the stages of one edge exchange, sorted. Values of replicated nodes never cross. A
// planning-only node has one value, output 0.
std::vector<ValueRef> EdgeValues(const Graph& graph, const Strategy& strategy, StageEdge edge);

// Whether a stage has a backward pass in training: something in or above it trains.
bool HasBackward(const Graph& graph, const Stage& stage);

}  // namespace stagewright
