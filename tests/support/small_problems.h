// Random problems small enough for exhaustive search: what planners and bounds are compared on with
// the optimum.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/cost/cost_model.h"
#include "common/cost/parameters.h"
#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"
#include "common/topology/cluster.h"
#include "planner_service/planner/planner.h"

namespace stagewright::testing {

inline constexpr int32_t kSmallProblems = 200;

// Costs of planning-only nodes on devices of different rates: the profile is that of a kind with 1
// TFLOP/s, and every pass of an operator takes a launch as well, which small micro-batches pay more
// often.
class RatedProfileCosts : public CostModel {
 public:
  explicit RatedProfileCosts(const Graph& graph);
  OperatorTime Time(NodeId node, const DeviceKind& kind, int64_t samples) const override;
  Bytes SavedBytes(NodeId node, int64_t samples) const override;
  Bytes WorkspaceBytes(NodeId node, int64_t samples) const override;
  std::string Description() const override { return "profile scaled by the device's rate"; }

 private:
  const Graph* graph_;
  std::unique_ptr<CostModel> profile_;
};

// A problem with all that it refers to. Chains, fans, diamonds, skips and tangles of 4 to 10
// operators in turn; 2 to 4 devices, of two kinds or behind slow links in every other; mini-batches
// of 4 to 16 samples; memory that binds now and then.
struct SmallProblem {
  std::string name;  // "17: diamonds, 9 operators, 4 mixed devices, mini-batch 8"
  Graph graph;
  Cluster cluster;
  int64_t mini_batch = 1;
  Optimizer optimizer = Optimizer::kSgd;
  OperatorGraph operators;
  std::unique_ptr<RatedProfileCosts> costs;

  // Valid while this stays where it is.
  Problem problem() const {
    return {&graph, &operators, &cluster, costs.get(), mini_batch, optimizer};
  }
};

// Number `index` in [0, kSmallProblems); always the same. By pointer, because problem() refers to
// its members.
std::unique_ptr<SmallProblem> MakeSmallProblem(int32_t index);

inline constexpr int32_t kLeanProblems = 300;

// Number `index` in [0, kLeanProblems) of problems in which messages and sums count: joins and
// branches of 3 to 7 operators, 2 to 4 devices of one or two kinds behind links of 20 MB/s to 4
// GB/s that they own or share, mini-batches of 1 to 8 samples.
std::unique_ptr<SmallProblem> MakeLeanProblem(int32_t index);

}  // namespace stagewright::testing
