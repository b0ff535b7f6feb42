// What planner operators cost and exchange, as numbers: sums over any set of operators follow
// without asking the graph or the cost model again. Searches that move single operators between
// stages thousands of times start from these tables.
//
// Memory figures follow the rules of common/lowering/lower.h. A constant node that a stage
// recomputes is charged to each operator that reads it, and a parameter to each operator that uses
// it, so sums never fall below what the evaluator will find.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "common/base/units.h"
#include "common/graph/series_parallel.h"
#include "planner_service/planner/planner.h"

namespace stagewright {

// Costs for one number of samples.
struct ShareTable {
  std::vector<std::vector<OperatorTime>> time;  // [device kind][operator], ns.
  std::vector<Bytes> saved;                     // Kept from the forward to the backward pass.
  std::vector<Bytes> workspace;                 // While an operator runs.
};

class OperatorCosts {
 public:
  // A reader of a value.
  struct Use {
    int32_t consumer = 0;   // Operator.
    bool gradient = false;  // The value's gradient comes back.
  };
  struct Value {
    int32_t producer = 0;  // Operator.
    Bytes bytes_per_sample = 0;
    Bytes held_per_sample = 0;  // Beyond `saved` of the producer, if the value leaves its stage.
    std::vector<Use> uses;      // Each other operator that reads it once, ascending.
  };

  // The problem must outlive the costs. O(nodes + reads), and what Decompose() takes.
  explicit OperatorCosts(const Problem& problem);

  const Problem& problem() const { return *problem_; }
  const SpTree& tree() const { return tree_; }  // Of the operators.
  int32_t size() const { return static_cast<int32_t>(resident_.size()); }
  // Computed at the first call for a number of samples (O(nodes * kinds)), then kept.
  const ShareTable& Share(int64_t samples) const;
  const std::vector<Value>& values() const { return values_; }

  Bytes resident(int32_t op) const { return resident_[op]; }    // Parameters, gradients, optimizer.
  Bytes gradients(int32_t op) const { return gradients_[op]; }  // Summed by replicas.
  Bytes trained(int32_t op) const { return trained_[op]; }  // What the optimizer step goes over.
  bool has_backward(int32_t op) const { return has_backward_[op]; }

 private:
  void CollectValues();
  void CollectParameters();

  const Problem* problem_;
  SpTree tree_;
  std::vector<std::vector<NodeId>> replicated_;  // Constant nodes that each operator reads.
  std::vector<Value> values_;
  std::vector<Bytes> resident_, gradients_, trained_;
  std::vector<bool> has_backward_;
  mutable std::map<int64_t, std::unique_ptr<ShareTable>> shares_;
};

}  // namespace stagewright
