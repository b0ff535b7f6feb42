// What a stage costs, in constant time per question.
//
// Planners that cut a linear order of the operators ask about the same ranges [begin, end) of it
// thousands of times. The oracle answers from sums of the cost table, as planned: prefix sums (time
// and saved bytes, per number of samples), a sparse table (workspace) and rows that are extended on
// demand (bytes that cross the range's boundary, and resident bytes with each shared parameter
// counted once).
//
// Memory figures are bounds of what common/memory/stage_memory.h finds in detail: everything
// saved and the largest need of one operator are taken to meet. Of operators of one node they fall
// at most 2 % below what the evaluator will find, where gradients of a value are summed in memory
// of their own; constant nodes that a stage recomputes are charged to each operator that reads
// them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "common/base/ids.h"
#include "common/base/units.h"
#include "planner_service/models/operator_costs.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

// Costs of ranges for shares of one size.
class ShareCosts {
 public:
  // Forward + backward of [begin, end) on one share, ns.
  double Time(int32_t begin, int32_t end) const { return time_[end] - time_[begin]; }
  // Its forward part.
  double Forward(int32_t begin, int32_t end) const { return forward_[end] - forward_[begin]; }
  // Both by position, of the operators before it: for loops.
  const double* TimeBefore() const { return time_.data(); }
  const double* ForwardBefore() const { return forward_.data(); }
  // Kept from the forward to the backward pass of the share.
  Bytes Saved(int32_t begin, int32_t end) const { return saved_[end] - saved_[begin]; }
  // Largest workspace of one operator in the range, which is not empty, and what at most flows past
  // it meanwhile.
  Bytes Workspace(int32_t begin, int32_t end) const;

 private:
  friend class StageOracle;
  std::vector<double> time_;
  std::vector<double> forward_;
  std::vector<Bytes> saved_;
  std::vector<std::vector<Bytes>> workspace_;  // [k][p]: maximum over [p, p + 2^k).
};

// All operators in the topological order of the model. O(operators).
std::vector<OperatorId> ModelOrder(const Problem& problem);

class StageOracle {
 public:
  // What a range holds and exchanges whatever the number of samples.
  struct Extent {
    Bytes resident = 0;         // Parameters, gradients, optimizer state.
    Bytes state = 0;            // The part of it that replicas share out; 0 if they do not.
    Bytes passing = 0;          // The part that goes after every backward pass of replicas.
    Bytes gradients = 0;        // Gradient bytes that replicas sum.
    double in_per_sample = 0;   // Activation bytes received from earlier ranges.
    double out_per_sample = 0;  // Activation bytes sent to later ranges, each value once.
    // Gradient bytes of what is sent, one gradient per operator that reads a value.
    double returned_per_sample = 0;
    // Bytes of what is sent that are kept for the backward pass only as its roots.
    double held_per_sample = 0;
    // Bytes put together for a message or out of several ones, at most.
    double copied_per_sample = 0;
  };

  // `order` is topological for the operators. The slowest kind of device of the cluster decides
  // times, the smallest budget memory. The problem must outlive the oracle. O(nodes).
  StageOracle(const Problem& problem, std::vector<OperatorId> order);

  int32_t size() const { return static_cast<int32_t>(order_.size()); }
  const std::vector<OperatorId>& order() const { return order_; }
  const Problem& problem() const { return costs_.problem(); }
  const OperatorCosts& costs() const { return costs_; }

  // Amortised O(1) per entry of a row; the reference lasts until the next call.
  const Extent& At(int32_t begin, int32_t end) const;
  // The extent of [begin, end) from that of [begin + 1, end), for callers that keep their own rows.
  Extent Grow(const Extent& extent, int32_t begin, int32_t end) const;

  // Resident and gradient bytes that [0, p) cannot do without, for p in [0, size()]: every
  // parameter counts at its last use. Differences never exceed what a range holds.
  void LeastParameters(std::vector<Bytes>& resident, std::vector<Bytes>& gradients) const;

  // What the ranges that start at `begins` (ascending, from 0, the last one ends at size())
  // exchange. O(operators + reads log(reads)).
  std::vector<CostTable::Exchange> Exchanges(const std::vector<int32_t>& begins) const;

  // Costs of shares of `samples` samples; computed at the first call (O(nodes)), then cached.
  const ShareCosts& Share(int64_t samples) const;

  // Peak memory of one replica of a stage whose replicas hold `micro_batches_in_flight` of
  // `micro_batches` shares of `samples` samples at once.
  struct Flow {
    int64_t samples = 1;
    int64_t micro_batches_in_flight = 1;
    int64_t micro_batches = 1;
    bool recompute = false;  // The forward pass is run again before each backward pass.
    int64_t replicas = 1;    // They share out Extent::state.
  };
  Bytes Memory(int32_t begin, int32_t end, const Flow& flow) const;
  // Peak memory of a range without asking again for what the caller already has.
  static Bytes Memory(const Extent& extent, Bytes saved, Bytes workspace, const Flow& flow);

  // Smallest memory budget of the cluster, and the device kind that times are for.
  Bytes budget() const { return budget_; }
  const DeviceKind& kind() const { return *kind_; }

 private:
  struct ValueUse {
    double bytes_per_sample = 0;
    double held_per_sample = 0;      // Beyond what the producer saves, if the value leaves a stage.
    int32_t producer = 0;            // Position.
    std::vector<int32_t> consumers;  // Positions other than the producer's, ascending, unique.
  };
  struct ParameterUse {
    Bytes resident = 0;
    Bytes gradient = 0;
    Bytes state = 0;    // The part of `resident` that replicas share out.
    Bytes passing = 0;  // The part of it that goes after every backward pass.
    int32_t next = 0;   // Next position that uses the same parameter; size() if none.
  };
  void CollectValues(const std::vector<int32_t>& position);
  void CollectParameters();
  void CollectInputs();
  std::vector<Bytes> PassingBytes(int64_t samples) const;

  OperatorCosts costs_;
  std::vector<OperatorId> order_;
  const DeviceKind* kind_;
  Bytes budget_;
  std::vector<ValueUse> values_;
  std::vector<std::vector<int32_t>> produced_;  // By position: values.
  std::vector<std::vector<int32_t>> consumed_;  // By position: values of earlier positions.
  std::vector<std::vector<ParameterUse>> parameters_;
  std::vector<InputId> passing_inputs_;            // Inputs that no node saves.
  mutable std::vector<std::vector<Extent>> rows_;  // rows_[end][end - begin].
  mutable std::map<int64_t, std::unique_ptr<ShareCosts>> shares_;
};

// The kind on which the whole graph takes longest for `samples` samples; ties to the first.
const DeviceKind& SlowestKind(const Problem& problem, int64_t samples);

}  // namespace stagewright
