#include "planner_service/front_door/front_door.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "common/topology/presets.h"
#include "planner_service/front_door/planner_table.h"
#include "tests/support/clusters.h"
#include "tests/support/graph_builder.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::FlatCluster;
using ::testing::HasSubstr;
using testing::MakeStrategy;
using ::testing::Not;
using testing::ProfiledChain;

// Four branches that join, on four devices.
class FrontDoorTest : public ::testing::Test {
 protected:
  FrontDoorTest() {
    request_.graph = &graph_;
    request_.cluster = &cluster_;
    request_.mini_batch = 16;
  }
  absl::StatusOr<PlanResponse> Solve(const ImprovementCallback& on_improvement = {}) {
    SearchContext context;
    return SolvePlan(request_, context, on_improvement);
  }
  Graph graph_ = testing::ProfiledGraph({{5000, 9000, kKiB, kKiB, {}},
                                         {5000, 9000, kKiB, kKiB, {}},
                                         {5000, 9000, kKiB, kKiB, {}},
                                         {5000, 9000, kKiB, kKiB, {}},
                                         {500, 900, kKiB, kKiB, {0, 1, 2, 3}}});
  Cluster cluster_ = FlatCluster(4, kGiB, 10, 1e10);
  PlanRequest request_;
};

TEST_F(FrontDoorTest, PlansAndSaysWhereThePlanIsFrom) {
  const auto response = Solve();
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->termination, Termination::kFeasible);
  ASSERT_TRUE(response->best);
  EXPECT_EQ(response->operators, 5);
  EXPECT_GT(response->lower_bound, 0);
  EXPECT_GE(response->best->evaluation.iteration_time, response->lower_bound);
  EXPECT_GT(response->candidates, 0);
  EXPECT_FALSE(response->sequential);
  const Plan& plan = response->best->plan;
  EXPECT_EQ(plan.provenance.planner, kDefaultPlanner);
  EXPECT_FALSE(plan.provenance.version.empty());
  EXPECT_EQ(plan.provenance.cluster, "flat");
  EXPECT_THAT(plan.provenance.options, HasSubstr("mini_batch=16"));
  EXPECT_THAT(plan.provenance.cost_model, HasSubstr("analytic"));
  EXPECT_EQ(plan.provenance.graph_fingerprint, Fingerprint(graph_));
  EXPECT_EQ(plan.fingerprint, Fingerprint(plan.program, Fingerprint(graph_)));
  EXPECT_EQ(Solve()->best->plan.fingerprint, plan.fingerprint);
}

TEST_F(FrontDoorTest, FieldsThatAreWrongAreNamed) {
  const auto message = [&](absl::StatusCode code) {
    const absl::Status status = Solve().status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  };
  request_.graph = nullptr;
  EXPECT_THAT(message(absl::StatusCode::kInvalidArgument), HasSubstr("graph: missing"));
  request_.graph = &graph_;
  request_.cluster = nullptr;
  EXPECT_THAT(message(absl::StatusCode::kInvalidArgument), HasSubstr("cluster: missing"));
  request_.cluster = &cluster_;
  request_.mini_batch = 0;
  EXPECT_THAT(message(absl::StatusCode::kInvalidArgument), HasSubstr("mini_batch: must be"));
  request_.mini_batch = 16;
  request_.planner = "magic";
  EXPECT_THAT(message(absl::StatusCode::kNotFound),
              AllOf(HasSubstr("'magic'"), HasSubstr("graphpipe"), HasSubstr("data-parallel")));
}

TEST_F(FrontDoorTest, PlansForThePrecisionOfTheTraining) {
  request_.precision = Precision::kBFloat16;
  EXPECT_EQ(Solve().status().message(),
            "precision: times of the graph were measured, in the precision of then; leave it at "
            "\"graph\"");
  testing::GraphBuilder builder("layers");
  Argument x = builder.Feature("x", {512, 1024});
  for (int layer = 0; layer < 4; ++layer) {
    const Argument weight = builder.Weight(absl::StrCat("w", layer), {1024, 1024});
    x = builder.Add("aten.linear.default", {x, weight}, {512, 1024});
  }
  builder.Loss(x, {512, 1024});
  graph_ = builder.Build();
  cluster_ = *ClusterPreset("dgx-a100:1");
  request_.planner = "sequential";
  const auto mixed = Solve();
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  EXPECT_THAT(mixed->best->plan.provenance.options, HasSubstr(" precision=bf16"));
  EXPECT_THAT(mixed->best->plan.provenance.cost_model, HasSubstr("bf16"));
  request_.precision = Precision::kGraph;
  const auto wide = Solve();
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_THAT(wide->best->plan.provenance.options, Not(HasSubstr("precision")));
  EXPECT_LT(2 * mixed->best->evaluation.iteration_time, wide->best->evaluation.iteration_time);
  EXPECT_LT(mixed->lower_bound, wide->lower_bound);
}

// Passes that cost far more than what they compute.
TEST_F(FrontDoorTest, SaysWhereSeveralDevicesDoNotPay) {
  ClusterData data = cluster_.data();
  data.kinds[0].pass_overhead = kMillisecond;
  data.kinds[0].message_overhead = kMillisecond;
  cluster_ = Cluster::Create(data).value();
  request_.options.allow_replicas = false;
  const auto automatic = Solve();
  ASSERT_TRUE(automatic.ok() && automatic->best) << automatic.status();
  EXPECT_EQ(automatic->best->plan.strategy.stages.size(), 1u);
  EXPECT_EQ(automatic->one_device, automatic->best->evaluation.iteration_time);
  EXPECT_THAT(automatic->warnings,
              ::testing::Contains(HasSubstr("a pipeline does not pay: one device takes 2.")));
  request_.options.num_stages = 4;
  const auto forced = Solve();
  ASSERT_TRUE(forced.ok() && forced->best) << forced.status();
  EXPECT_GT(forced->best->evaluation.iteration_time, *automatic->one_device);
  EXPECT_EQ(forced->one_device, automatic->one_device);
}

TEST_F(FrontDoorTest, MoreStagesThanOperatorsAreInfeasible) {
  request_.options.num_stages = 6;
  const auto response = Solve();
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->termination, Termination::kInfeasible);
  EXPECT_EQ(response->reason,
            "num_stages is 6, but the graph has only 5 operators that can be separated");
}

TEST_F(FrontDoorTest, AModelThatFitsNowhereIsInfeasibleWithAReason) {
  const Graph large = ProfiledChain(3, {1000, 1000, 0, kGiB, {}});
  request_.graph = &large;
  const auto response = Solve();
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->termination, Termination::kInfeasible);
  EXPECT_FALSE(response->best);
  EXPECT_THAT(response->reason, AllOf(HasSubstr("too much"), HasSubstr("would make it fit")));
}

TEST_F(FrontDoorTest, ComparesWithTheBestSequentialPlan) {
  request_.planner = "graphpipe";
  request_.compare_sequential = true;
  request_.options.allow_replicas = false;
  const auto response = Solve();
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_TRUE(response->sequential);
  EXPECT_EQ(response->sequential->plan.strategy.kind, StrategyKind::kSequential);
  EXPECT_EQ(response->sequential->plan.provenance.planner, "sequential");
  EXPECT_LT(response->best->evaluation.iteration_time,
            response->sequential->evaluation.iteration_time);
  EXPECT_LT(response->best->evaluation.depth, response->sequential->evaluation.depth);
  request_.planner = "sequential";
  const auto same = Solve();
  EXPECT_EQ(same->best->plan.fingerprint, same->sequential->plan.fingerprint);
}

TEST_F(FrontDoorTest, EveryImprovementIsJudgedAndBetter) {
  std::vector<Nanos> times;
  const auto response = Solve([&](const JudgedPlan& judged) {
    times.push_back(judged.evaluation.iteration_time);
    EXPECT_FALSE(judged.plan.program.devices.empty());
  });
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_FALSE(times.empty());
  EXPECT_TRUE(std::is_sorted(times.rbegin(), times.rend()));
  EXPECT_EQ(times.back(), response->best->evaluation.iteration_time);
}

TEST_F(FrontDoorTest, AnExpiredContextIsALimit) {
  SearchContext context;
  context.Cancel();
  const auto response = SolvePlan(request_, context);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->termination, Termination::kLimit);
  EXPECT_FALSE(response->reason.empty());
}

TEST_F(FrontDoorTest, JudgesStrategiesMadeElsewhere) {
  const Strategy strategy = MakeStrategy(graph_, {{0, 1}, {2, 3, 4}}, {{0}, {1}}, 16, 4);
  request_.timeline = true;
  const auto judged = JudgeStrategy(request_, strategy, "hand");
  ASSERT_TRUE(judged.ok()) << judged.status();
  EXPECT_EQ(judged->plan.provenance.planner, "hand");
  EXPECT_FALSE(judged->evaluation.simulation.timeline.empty());
  request_.mini_batch = 8;
  EXPECT_EQ(JudgeStrategy(request_, strategy, "hand").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(FrontDoorTest, JudgesNoLongerThanItsContext) {
  const Strategy strategy = MakeStrategy(graph_, {{0, 1}, {2, 3, 4}}, {{0}, {1}}, 16, 4);
  SearchContext context;
  EXPECT_TRUE(JudgeStrategy(request_, strategy, "hand", &context).ok());
  context.Cancel();
  const absl::Status late = JudgeStrategy(request_, strategy, "hand", &context).status();
  EXPECT_TRUE(absl::IsCancelled(late)) << late;
}

TEST_F(FrontDoorTest, ListsPlannersWithDescriptions) {
  const std::vector<PlannerInfo> infos = ListPlanners();
  ASSERT_GE(infos.size(), 4u);
  EXPECT_EQ(infos[0].name, kDefaultPlanner);
  for (const PlannerInfo& info : infos) {
    EXPECT_FALSE(info.description.empty()) << info.name;
    EXPECT_EQ(info.learns_by_trial, info.name == "drl_pp") << info.name;
  }
}

TEST_F(FrontDoorTest, MeasurementsAreRefusedByPlannersThatDoNotLearnFromThem) {
  SearchContext context;
  context.measure = [](const Problem&) -> MeasureStrategy {
    return [](const Strategy&) -> absl::StatusOr<double> { return 1.0; };
  };
  const auto response = SolvePlan(request_, context);
  EXPECT_EQ(response.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(response.status().message()), HasSubstr("planner 'auto' does not learn"));
}

// A planner that answers whatever it is told to.
class TellTale : public Planner {
 public:
  explicit TellTale(Outcome outcome) : outcome_(std::move(outcome)) {}
  std::string name() const override { return "tell-tale"; }
  std::string description() const override { return "says what it is told"; }
  absl::StatusOr<Outcome> Solve(const Problem&, const PlanOptions&,
                                SearchContext& context) const override {
    if (context.on_improvement && outcome_.strategy) context.on_improvement(*outcome_.strategy);
    return outcome_;
  }

 private:
  Outcome outcome_;
};

TEST_F(FrontDoorTest, APlannerThatClaimsSomethingFalseIsCaught) {
  Outcome outcome;
  outcome.termination = Termination::kOptimal;
  outcome.strategy = MakeStrategy(graph_, {{0, 1}, {2, 3, 4}}, {{0}, {1}}, 16, 4);
  SearchContext context;
  EXPECT_TRUE(SolvePlanWith(TellTale(outcome), request_, context).ok());

  const auto expect_internal = [&](const Outcome& bad, const char* message) {
    for (bool streaming : {false, true}) {
      const ImprovementCallback on_improvement = [](const JudgedPlan&) {};
      const absl::Status status = SolvePlanWith(TellTale(bad), request_, context,
                                                streaming ? on_improvement : ImprovementCallback())
                                      .status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("'tell-tale'"), HasSubstr(message)));
    }
  };
  Outcome bad = outcome;
  bad.strategy->stages[0].nodes.pop_back();  // A node in no stage.
  expect_internal(bad, "C1");
  bad = outcome;
  bad.strategy->stages[1].devices = {DeviceId(99)};
  expect_internal(bad, "rejects");
  bad = outcome;
  bad.strategy.reset();
  expect_internal(bad, "without a strategy");
  request_.options.num_stages = 3;
  EXPECT_EQ(SolvePlanWith(TellTale(outcome), request_, context).status().code(),
            absl::StatusCode::kInternal);
  request_.options.num_stages = 0;
  const Cluster small = FlatCluster(4, 6 * kKiB);
  request_.cluster = &small;
  expect_internal(outcome, "too much");
}

}  // namespace
}  // namespace stagewright
