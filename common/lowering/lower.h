// Strategy -> Program. The only place where a schedule is made.
//
// A strategy's explicit orders (Strategy::orders) are the compute lanes. Without them each stage
// runs forwards in sample order until `in_flight` samples are in flight, then alternates k
// backwards and k forwards (GraphPipe section 6, SCHEDULETASK), then drains. Where neighbouring
// stages differ in micro-batch size or replication, transfers are the intersections of their sample
// ranges. The sender's place decides nothing: for each send the matching receive is placed in the
// peer's program, in the order of the peer's compute lane, as early as receive_posting.h says.
// Optimizer steps follow the last backward pass, or its weight half; one of them updates what has
// been summed while the last bucket of a stage still is. All-reduces run beside that
// pass: the gradients of a replicated stage are summed in buckets, each from the mark on at which
// the pass has completed it (reductions.h); those of parameters that several stages share follow
// the last pass. Where replicas share out the optimizer's state, a reduce-scatter stands for each
// of those sums, and after the optimizer step that follows it an all-gather brings the parameters
// up to date (Strategy::optimizer_sharding). Where they share out the gradients, too, these sums
// follow the backward pass of every micro-batch, and the stage's next pass waits for them: what it
// holds takes the place of whole gradients. Devices of several stages sum in one common order
// (sum_order.h).
//
// Asynchronous strategies (PipeDream, Narayanan et al. 2019, section 3) are never flushed: a stage
// with w micro-batches in flight runs w forwards in the prologue, then per micro-batch a backward,
// its update (all-reduces over the replicas and the optimizer step) and the next forward, which in
// the last w rounds of the body belongs to the next step: its samples are counted on from
// mini_batch. The epilogue is the body of the last step, without those forwards. Micro-batch m thus
// runs forward after max(0, m - w + 1) updates of its stage and backward with the same weights
// (weight stashing), of which a stage holds w versions; those beyond the first are resident.
// Versions of different stages may differ for one micro-batch, unless there is vertical sync: then
// all stages run it forward after max(0, m - W + 1) updates, W being the largest w of the stages
// with a backward pass. A stage takes an older version than its newest by W - w
// (ProgramStage::version_lag) and holds W versions.
//
// Memory: a pass acquires the most that it holds above what is there and releases what it does not
// leave (stage_memory.h). What is sent is released when it has been. The first backward after an
// update leaves the gradients of parameters, which the next update releases; where replicas share
// out the gradients, every backward pass leaves them, their sum releases them, and what the first
// sum leaves of them is the share that the next update releases. Received tensors lie in buffers
// that a device holds throughout (message_buffers.h). Of planning-only graphs, they come with the
// receive and go with the backward, and gradients of parameters that are not summed after every
// pass are there throughout; a planning-only node holds all it saved until the end of the backward,
// or its weight half, or until it has made a gradient that is.
#pragma once

#include "common/base/status.h"
#include "common/cost/cost_model.h"
#include "common/cost/parameters.h"
#include "common/graph/graph.h"
#include "common/lowering/receive_posting.h"
#include "common/program/program.h"
#include "common/strategy/strategy.h"
#include "common/topology/cluster.h"

namespace stagewright {

struct LowerOptions {
  Optimizer optimizer = Optimizer::kAdam;
  bool training = true;  // False: forward only.
  // A sum of the squared norm of all gradients over all devices precedes the optimizer steps, for
  // clipping. Not for asynchronous strategies, which have no such moment.
  bool gradient_norm = false;
  ReceivePosting posting = {};
  // Where the program is to run, which decides how gradients are cut for their sums
  // (gradient_buckets.h). Null: as Strategy::bucket_bytes says, and not at all if that is 0.
  const Cluster* cluster = nullptr;
};

// `strategy` satisfies CheckStrategy. INVALID_ARGUMENT if a tensor that has no batch dimension
// would have to be split (names it), or for a gradient norm of an asynchronous strategy.
// O(actions).
absl::StatusOr<Program> Lower(const Graph& graph, const Strategy& strategy, const CostModel& costs,
                              const LowerOptions& options);

}  // namespace stagewright
