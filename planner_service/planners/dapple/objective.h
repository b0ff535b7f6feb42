// What DAPPLE minimises: the latency of one synchronous mini-batch.
//
// Two objectives: that of the paper, L = T_w + T_s + T_e around a pivot stage, and that of the
// published program, which ranks plans by a formula of its own. Both are free functions over plain
// numbers. All times are seconds, sizes bytes.
//
// Deviations from the paper (1 to 3: search.h, 4 to 9: dapple.cc):
//  10. Sum of the pivot. Formula 2 as printed lets the all-reduce of the pivot stage Q overlap with
//     the stage's own last backward pass: T_e has AR_Q - B_Q for s = Q, as for the stages behind
//     it, and no term holds that pass where Q is the first stage. A stage's gradients are complete
//     only after its last backward pass, so by default T_e has AR_Q + B_Q, as for the stages before
//     it. PivotSum::kAsPrinted is the printed formula; docs/results/dapple.md has plans of both.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/ids.h"

namespace stagewright::dapple {

// A message or a sum of gradients: latency + bytes * per_byte.
struct Affine {
  double latency = 0;
  double per_byte = 0;
  double Seconds(double bytes) const { return bytes > 0 ? latency + bytes * per_byte : 0; }
};

// A network as the planner sees it. Device sets are ascending.
class Network {
 public:
  virtual ~Network() = default;
  // A tensor that `from` hold in equal parts and `to` want in equal parts.
  virtual Affine Transfer(const std::vector<DeviceId>& from,
                          const std::vector<DeviceId>& to) const = 0;
  virtual Affine AllReduce(const std::vector<DeviceId>& devices) const = 0;
};

// One computation stage of a plan and the network stage before it.
struct StageLoad {
  double forward = 0;     // F_s of one micro-batch.
  double backward = 0;    // B_s
  double all_reduce = 0;  // AR(P_s, g_s)
  double transfer = 0;    // One way, of the activations from the stage before; 0 for the first.
};

// The paper's S stages: computation stages with a network stage between neighbours.
struct Pivot {
  int32_t stage = 0;  // Q, an index into the paper's stages: computation stage i is 2 i.
  double warm_up = 0;
  double steady = 0;
  double ending = 0;
  double Latency() const { return warm_up + steady + ending; }
};

// The term of T_e for the pivot stage itself, deviation 10.
enum class PivotSum {
  kAfterBackward,  // AR_Q + B_Q
  kAsPrinted,      // AR_Q - B_Q; T_e may be negative.
};

// Formulas 1 to 3: Q by the heuristic, from the last stage to the first, then T_w, T_s and T_e.
// O(stages^2). REQUIRES: at least one stage.
Pivot LatencyAsInPaper(const std::vector<StageLoad>& stages, int64_t micro_batches,
                       PivotSum pivot_sum = PivotSum::kAfterBackward);

// The published program's ranking. The mini-batch runs as `copies` pipelines side by side whose
// gradients are summed together; stage times are those of a micro-batch of one of them.
//   block = max over stages of forward + backward, and of what `steady_transfers` counts
//   L = block (M - 1) + one micro-batch on one device + all transfers once
//       + max over stages i of (AR_i - i block, 0)
struct CodedPlan {
  std::vector<StageLoad> stages;
  double one_device = 0;        // A whole micro-batch on one device.
  int64_t micro_batches = 1;    // M, of each copy.
  double steady_transfers = 2;  // 2: both ways limit the block; 1: the program's two-stage plans.
};
double LatencyAsCoded(const CodedPlan& plan);

}  // namespace stagewright::dapple
