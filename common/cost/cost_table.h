// What planner operators cost, exchange and hold: the one collection of it that searches, estimates
// and bounds start from. Sums over any set of operators follow without asking the graph or the cost
// model again. There are two views.
//
// As planned. An operator with the replicated nodes that it pulls in (forward passes only: nothing
// in them trains), and every parameter that it uses. A stage's sums never fall below what the
// evaluator finds for it; they exceed that where operators of one stage share replicated nodes or
// parameters, which it has once.
//
// At least. Own nodes alone, parameters that no other operator uses, and what a value has whatever
// the number of samples. A stage's sums never exceed what the evaluator finds for it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/cost/parameters.h"
#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"
#include "common/topology/cluster.h"

namespace stagewright {

enum class CostView { kPlanned, kLeast };

// By operator, its own nodes alone. O(nodes).
std::vector<OperatorTime> OwnTimes(const OperatorGraph& operators, const CostModel& costs,
                                   const DeviceKind& kind, int64_t samples);

// Costs for one number of samples.
struct ShareTable {
  std::vector<std::vector<OperatorTime>> time;  // [device kind][operator], ns.
  std::vector<Bytes> saved;                     // Kept from the forward to the backward pass.
  std::vector<Bytes> workspace;                 // While an operator runs.
};

class CostTable {
 public:
  // A reader of a value.
  struct Use {
    int32_t consumer = 0;   // Operator.
    bool gradient = false;  // The value's gradient comes back.
  };
  struct Value {
    int32_t producer = 0;  // Operator.
    Bytes bytes_per_sample = 0;
    Bytes least_per_sample = 0;  // The same at least: 0 where it depends on the number of samples.
    Bytes held_per_sample = 0;   // Beyond `saved` of the producer, if the value leaves its stage.
    std::vector<Use> uses;       // Each other operator that reads it once, ascending.
  };
  // What two groups of operators exchange, per sample: each value once and, where one of its
  // readers in `to` sends a gradient, once back.
  struct Exchange {
    int32_t from = 0;
    int32_t to = 0;
    Bytes there = 0;
    Bytes back = 0;
    bool gradient = false;
  };
  // What an operator holds throughout a job.
  struct Held {
    std::vector<ParameterId> parameters;
    HeldBytes profiled;  // What planning-only nodes hold, as planned.
    HeldBytes planned;   // All of it.
    HeldBytes least;
    bool has_backward = false;
  };

  // What is referenced outlives the table. O(nodes + reads).
  CostTable(const Graph& graph, const OperatorGraph& operators, const Cluster& cluster,
            const CostModel& costs, Optimizer optimizer,
            OptimizerSharding sharding = OptimizerSharding::kNone);

  int32_t size() const { return operators_->size(); }
  const std::vector<Value>& values() const { return values_; }
  const Held& held(int32_t op) const { return held_[op]; }
  // What one parameter takes on a device that uses it, as planned.
  const HeldBytes& held(ParameterId id) const { return of_parameter_[id.index()]; }
  // By (from, to), unique, for `group` of every operator. O(reads log(reads)).
  std::vector<Exchange> Exchanges(const std::vector<int32_t>& group,
                                  CostView view = CostView::kPlanned) const;

  // Computed at the first call for a number of samples (O(nodes * kinds)), then kept.
  const ShareTable& Share(int64_t samples, CostView view = CostView::kPlanned) const;
  // The same for one kind of device, not kept: `time` has one row. O(nodes).
  ShareTable ShareOn(const DeviceKind& kind, int64_t samples, CostView view) const;

 private:
  void CollectValues();
  void CollectParameters(Optimizer optimizer, OptimizerSharding sharding);
  std::vector<OperatorTime> Times(const DeviceKind& kind, int64_t samples, CostView view) const;
  ShareTable Memory(int64_t samples, CostView view) const;

  const Graph* graph_;
  const OperatorGraph* operators_;
  const Cluster* cluster_;
  const CostModel* costs_;
  std::vector<std::vector<NodeId>> replicated_;  // By operator: nodes that it pulls in.
  std::vector<Value> values_;
  std::vector<Held> held_;
  std::vector<HeldBytes> of_parameter_;
  mutable std::map<std::pair<int64_t, CostView>, ShareTable> shares_;
};

}  // namespace stagewright
