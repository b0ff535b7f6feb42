#include "planner_service/front_door/split_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/topology/presets.h"
#include "common/topology/uniform.h"
#include "tests/support/graph_builder.h"
#include "tests/support/profiled_graphs.h"

namespace stagewright {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Light branches, a join "n4" with most of the work and parameters whose gradients take long to
// add up, and a light end.
Graph HeavyJoin() {
  const testing::Work light{.forward = 500'000,
                            .backward = 1'000'000,
                            .activation_bytes = 100'000,
                            .parameter_bytes = 1'000'000};
  std::vector<testing::Work> nodes(6, light);
  nodes[4].forward = 2'000'000;
  nodes[4].backward = 4'000'000;
  nodes[4].parameter_bytes = 400'000'000;
  nodes[4].after = {0, 1, 2, 3};
  nodes[5].after = {4};
  return testing::ProfiledGraph(nodes);
}

class SplitPlansTest : public ::testing::Test {
 protected:
  SplitPlansTest() {
    request_.graph = &graph_;
    request_.cluster = &cluster_;
    request_.mini_batch = 16;
    request_.optimizer = Optimizer::kSgd;
  }

  absl::StatusOr<PlanResponse> Solve(const ImprovementCallback& improved = {}) const {
    SearchContext context;
    return SolvePlan(request_, context, improved);
  }

  const Graph graph_ = HeavyJoin();
  const Cluster cluster_ = *UniformPreset("uniform:8");
  PlanRequest request_;
};

TEST_F(SplitPlansTest, AutoCutsWhatBinds) {
  request_.options.try_splits = false;
  const auto whole = Solve();
  ASSERT_TRUE(whole.ok() && whole->best) << whole.status();
  EXPECT_THAT(whole->best->plan.strategy.splits, IsEmpty());
  EXPECT_EQ(whole->best->split_graphs, nullptr);
  EXPECT_THAT(whole->best->plan.provenance.options, HasSubstr("split_operators=off"));

  request_.options.try_splits = true;
  request_.compare_sequential = true;
  std::vector<JudgedPlan> improvements;
  const auto found = Solve([&](const JudgedPlan& plan) { improvements.push_back(plan); });
  ASSERT_TRUE(found.ok() && found->best) << found.status();
  const Strategy& strategy = found->best->plan.strategy;
  ASSERT_EQ(strategy.splits.size(), 1u);
  EXPECT_EQ(strategy.splits[0].node, "n4");
  EXPECT_LT(found->best->evaluation.iteration_time.count(),
            0.8 * whole->best->evaluation.iteration_time.count());
  EXPECT_GE(found->best->evaluation.iteration_time, found->lower_bound);
  EXPECT_THAT(found->warnings, Contains(HasSubstr("as if it were a linear layer")));
  ASSERT_TRUE(found->sequential);
  EXPECT_EQ(found->sequential->plan.strategy.splits, strategy.splits);
  ASSERT_FALSE(improvements.empty());
  for (size_t i = 1; i < improvements.size(); ++i) {
    EXPECT_LT(improvements[i].evaluation.iteration_time,
              improvements[i - 1].evaluation.iteration_time);
  }
  EXPECT_EQ(improvements.back().plan.strategy.splits, strategy.splits);

  // The strategy means the same to whoever has only the graph as it was.
  const auto judged = JudgeStrategy(request_, strategy, "given");
  ASSERT_TRUE(judged.ok()) << judged.status();
  EXPECT_EQ(judged->plan.fingerprint, found->best->plan.fingerprint);
  EXPECT_EQ(judged->split_graphs->graph.size(), found->best->split_graphs->graph.size());
  const auto explained = ExplainStrategy(request_, strategy, SearchContext());
  ASSERT_TRUE(explained.ok()) << explained.status();
  EXPECT_EQ(explained->step_time, found->best->evaluation.iteration_time);
}

TEST_F(SplitPlansTest, AnyPlannerCutsWhatIsNamedAndNothingElse) {
  for (const char* planner : {"graphpipe", "pipedream", "auto"}) {
    SCOPED_TRACE(planner);
    request_.planner = planner;
    request_.options.splits = {{"n4", 2}, {"n0", 3}};
    request_.explain = true;
    const auto found = Solve();
    ASSERT_TRUE(found.ok() && found->best) << found.status();
    EXPECT_EQ(found->best->plan.strategy.splits, request_.options.splits);
    EXPECT_EQ(found->best->split_graphs->graph.size(), graph_.size() + 5);
    EXPECT_TRUE(found->explanation.has_value());
  }
  request_.planner = "graphpipe";
  request_.options.splits.clear();
  EXPECT_THAT(Solve()->best->plan.strategy.splits, IsEmpty());
}

TEST_F(SplitPlansTest, NamesWhatCannotBeCut) {
  request_.options.splits = {{"nobody", 2}};
  EXPECT_THAT(Solve().status().message(),
              HasSubstr("options.split_operators: there is no node or module \"nobody\""));
  request_.options.splits = {{"n4", 1}};
  EXPECT_THAT(Solve().status().message(), HasSubstr("is no number of parts"));
  request_.options.splits = {{"n4", 2}};
  request_.options.try_splits = false;
  EXPECT_THAT(Solve().status().message(), HasSubstr("names operators to cut and forbids it"));
  request_.options.try_splits = true;
  const auto costs = MakeAnalyticCostModel(graph_);
  request_.costs = costs.get();
  EXPECT_EQ(Solve().status().code(), absl::StatusCode::kInvalidArgument);
}

// Sixteen blocks of a language model of width 512 and a head over 128,000 words: 64 million of 114
// million parameters.
Graph LanguageModel() {
  constexpr int64_t kTokens = 64, kWidth = 512, kWords = 128'000;
  testing::GraphBuilder build("language model");
  Argument x = build.Feature("x", {kTokens, kWidth});
  for (int block = 0; block < 16; ++block) {
    Argument inner = x;
    for (const auto& [in, out] : {std::pair(kWidth, 3 * kWidth), {3 * kWidth, kWidth}}) {
      const std::string name = absl::StrCat("block", block, ".", out);
      inner =
          build.Add("aten.linear.default", {inner, build.Weight(name, {out, in})}, {kTokens, out});
      if (out > kWidth) inner = build.Add("aten.relu.default", {inner}, {kTokens, out});
    }
    x = build.Add("aten.add.Tensor", {x, inner}, {kTokens, kWidth});
  }
  const Argument head = build.Add(
      "aten.linear.default", {x, build.Weight("head.weight", {kWords, kWidth})}, {kTokens, kWords});
  build.data.nodes.back().name = "head";
  const auto rows = [&](std::vector<SymInt> shape, DType dtype) {
    TensorMeta meta{dtype, std::move(shape)};
    meta.layout = SampleLayout{0, 1};
    return meta;
  };
  const Argument logits = build.AddWith(
      "aten.view.default", {head, {Argument::List{{SymInt{kTokens, 0}}, testing::Number(kWords)}}},
      {rows({{kTokens, 0}, {0, kWords}}, DType::kFloat32)});
  const Argument labels = build.AddWith(
      "aten.view.default",
      {build.Feature("labels", {kTokens}, DType::kInt64), {Argument::List{{SymInt{kTokens, 0}}}}},
      {rows({{kTokens, 0}}, DType::kInt64)});
  const Argument loss = build.AddWith("aten.cross_entropy_loss.default", {logits, labels},
                                      {TensorMeta{DType::kFloat32, {}}});
  build.data.loss = std::get<ValueRef>(loss.value);
  return build.Build();
}

TEST(SplitPlansHeadTest, AHeadOver128000WordsDoesNotBind) {
  const Graph graph = LanguageModel();
  const Cluster cluster = *ClusterPreset("summit:4");
  ASSERT_EQ(cluster.size(), 16);
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = 32;
  request.options.allow_replicas = false;  // One stage a device or more: nothing hides the head.
  request.options.recompute = RecomputePolicy::kNever;
  request.options.try_splits = false;
  SearchContext context;
  const auto whole = SolvePlan(request, context);
  ASSERT_TRUE(whole.ok() && whole->best) << whole.status();
  request.options.try_splits = true;
  const auto found = SolvePlan(request, context);
  ASSERT_TRUE(found.ok() && found->best) << found.status();
  RecordProperty("whole_ms",
                 std::to_string(ToSeconds(whole->best->evaluation.iteration_time) * 1e3));
  RecordProperty("split_ms",
                 std::to_string(ToSeconds(found->best->evaluation.iteration_time) * 1e3));
  ASSERT_FALSE(found->best->plan.strategy.splits.empty());
  EXPECT_EQ(found->best->plan.strategy.splits[0].node, "head");
  EXPECT_LT(found->best->evaluation.iteration_time.count(),
            0.5 * whole->best->evaluation.iteration_time.count());
}

TEST(SplitPlansHeadTest, AHeadThatFitsNoDeviceIsCut) {
  const Graph graph = LanguageModel();  // 262 MB of head; with Adam's states four times as much.
  Cluster cluster = *ClusterPreset("uniform:8,memory=600MiB");
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = 8;
  request.optimizer = Optimizer::kAdam;
  request.options.try_splits = false;
  SearchContext context;
  const auto whole = SolvePlan(request, context);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_FALSE(whole->best.has_value());
  EXPECT_THAT(whole->reason, HasSubstr("operator 'head' alone needs"));
  EXPECT_THAT(whole->reason, HasSubstr("--split-operators head=2"));
  request.options.try_splits = true;
  const auto found = SolvePlan(request, context);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(found->best) << found->reason;
  ASSERT_FALSE(found->best->plan.strategy.splits.empty());
  EXPECT_EQ(found->best->plan.strategy.splits[0].node, "head");
  // What does not fit in any number of parts stays as it is, and the reason with it.
  cluster = *ClusterPreset("uniform:2,memory=100MiB");
  const auto none = SolvePlan(request, context);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->best.has_value());
  EXPECT_THAT(none->reason, HasSubstr("operator 'head' alone needs"));
}

}  // namespace
}  // namespace stagewright
