#include "planner_service/planner/whole_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "tests/support/clusters.h"
#include "tests/support/graph_builder.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A layer, batch normalisation, a layer and the loss, on three devices of which the last is fast.
class WholeBatchTest : public ::testing::Test {
 protected:
  static Graph Normalised() {
    testing::GraphBuilder builder("net");
    const Argument x = builder.Feature("x", {4});
    const Argument norm = builder.Add("aten.batch_norm.default", {builder.Linear(x, 4, 4)}, {4});
    builder.data.nodes[testing::NodeOf(norm).index()].batch_dependent = true;
    builder.Loss(builder.Linear(norm, 4, 1), {1});
    return builder.Build();
  }
  static Cluster OneFast() {
    ClusterData data = testing::FlatCluster(3).data();
    data.kinds.push_back(data.kinds[0]);
    data.kinds[1].name = "fast";  // At the model's small operators, whatever its peak.
    data.kinds[1].flops_per_second /= 2;
    data.kinds[0].kernel_overhead = kMicrosecond;
    data.devices[2].kind = 1;
    return Cluster::Create(std::move(data)).value();
  }

  const Graph graph_ = Normalised();
  const Cluster cluster_ = OneFast();
  const OperatorGraph operators_ = OneOperatorPerNode(graph_).value();
  const std::unique_ptr<CostModel> costs_ = MakeAnalyticCostModel(graph_);
  Problem problem_{&graph_, &operators_, &cluster_, costs_.get(), 8, Optimizer::kSgd};
};

// Gives back the options that it gets as a reason.
class Listener : public Planner {
 public:
  explicit Listener(PlannerAbilities abilities) : abilities_(abilities) {}
  std::string name() const override { return "listener"; }
  std::string description() const override { return "listens"; }
  PlannerAbilities abilities() const override { return abilities_; }
  absl::StatusOr<Outcome> Solve(const Problem&, const PlanOptions& options,
                                SearchContext&) const override {
    Outcome outcome;
    outcome.termination = Termination::kInfeasible;
    outcome.reason = "micro-batch " + std::to_string(options.micro_batch) +
                     (options.allow_replicas ? ", replicas" : ", no replicas");
    return outcome;
  }

 private:
  const PlannerAbilities abilities_;
};

TEST_F(WholeBatchTest, OperatorsNeedItUnlessStatisticsMayBeOfMicroBatches) {
  EXPECT_TRUE(HasWholeStages(problem_));
  EXPECT_THAT(WholeOperators(problem_), ElementsAre(false, true, false, false));
  problem_.batch_statistics = BatchStatistics::kMicro;
  EXPECT_FALSE(HasWholeStages(problem_));
  EXPECT_THAT(WholeOperators(problem_), ElementsAre(false, false, false, false));
}

TEST_F(WholeBatchTest, StagesThatNeedItRunOnTheirFastestDevice) {
  const Strategy strategy = WithWholeStages(
      problem_, testing::MakeStrategy(graph_, {{0}, {1, 2, 3}}, {{0}, {1, 2}}, 8, 2));
  EXPECT_EQ(strategy.stages[0].micro_batch, 2);
  EXPECT_EQ(strategy.stages[1].micro_batch, 8);
  EXPECT_THAT(strategy.stages[1].devices, ElementsAre(DeviceId(2)));
}

TEST_F(WholeBatchTest, PlannersThatKnowNothingOfItAreAskedForIt) {
  SearchContext context;
  PlannerAbilities abilities;
  const Outcome narrowed = SolveOnWholeBatches(Listener(abilities), problem_, {}, context).value();
  EXPECT_EQ(narrowed.termination, Termination::kLimit) << "no proof that nothing fits";
  EXPECT_THAT(narrowed.reason, HasSubstr("needs the whole mini-batch of 8 samples"));
  EXPECT_THAT(narrowed.reason, HasSubstr("micro-batch 8, no replicas"));

  abilities.whole_stages = true;
  const Outcome asked = SolveOnWholeBatches(Listener(abilities), problem_, {}, context).value();
  EXPECT_THAT(asked.reason, HasSubstr("micro-batch 0, replicas"));

  problem_.batch_statistics = BatchStatistics::kMicro;
  const Outcome plain = SolveOnWholeBatches(Listener({}), problem_, {}, context).value();
  EXPECT_EQ(plain.reason, "micro-batch 0, replicas");
  EXPECT_EQ(plain.termination, Termination::kInfeasible);
}

TEST_F(WholeBatchTest, OptionsThatContradictAreNamed) {
  SearchContext context;
  PlanOptions options;
  options.micro_batch = 2;
  EXPECT_THAT(SolveOnWholeBatches(Listener({}), problem_, options, context).value().reason,
              HasSubstr("a micro_batch of 2 is asked for"));
  PlannerAbilities replicas_only;
  replicas_only.without_replicas = false;
  EXPECT_THAT(SolveOnWholeBatches(Listener(replicas_only), problem_, {}, context).value().reason,
              HasSubstr("makes plans with replicas only"));
}

}  // namespace
}  // namespace stagewright
