#include "planner_service/importers/pipedream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/cost/analytic.h"
#include "common/cost/cost_model.h"
#include "planner_service/importers/profile.h"
#include "tests/support/shared_graphs.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;

// Two inputs, of which one has an input's name only, and a sink that becomes one only later.
constexpr char kProfile[] =
    "node1 -- Input0 -- forward_compute_time=5.0, backward_compute_time=0.0, "
    "activation_size=100.0, parameter_size=0.000\n"
    "node2 -- Conv2d(3, 4, bias=False) -- forward_compute_time=1.5, backward_compute_time=2.25, "
    "activation_size=[10.0; 20.0], parameter_size=400.000 -- stage_id=3\n"
    "\tnode1 -- node2\n"
    "node3 -- InputNorm -- forward_compute_time=0.000001, backward_compute_time=0, "
    "activation_size=1, parameter_size=0\n"
    "\tnode2 -- node3\n"
    "node4 -- __getitem__(0) -- forward_compute_time=0, backward_compute_time=0, "
    "activation_size=1, parameter_size=0\n"
    "node5 -- __getitem__(1) -- forward_compute_time=0, backward_compute_time=0, "
    "activation_size=1, parameter_size=0\n"
    "\tnode3 -- node4\n"
    "\tnode4 -- node5";

TEST(PipeDreamTest, ReadsTimesSizesAndEdges) {
  const auto profile = ImportPipeDream(kProfile, "dir/small.graph.txt");
  ASSERT_TRUE(profile.ok()) << profile.status();
  const Graph& graph = profile->graph;
  EXPECT_EQ(graph.name(), "small");
  EXPECT_FALSE(graph.executable());
  // The input is gone; of the two __getitem__ only the sink, once.
  ASSERT_EQ(graph.size(), 3);
  const Node& conv = graph.node(NodeId(0));
  EXPECT_EQ(conv.name, "node2");
  EXPECT_EQ(conv.module, "Conv2d(3, 4, bias=False)");
  EXPECT_EQ(conv.cost->forward, 1'500'000);
  EXPECT_EQ(conv.cost->backward, 2'250'000);
  EXPECT_EQ(conv.cost->activation_bytes, 30);
  EXPECT_EQ(conv.cost->parameter_bytes, 400);
  EXPECT_EQ(conv.cost->samples, 1);
  EXPECT_EQ(graph.node(NodeId(1)).cost->forward, 1);
  EXPECT_EQ(graph.node(NodeId(2)).name, "node4");
  EXPECT_THAT(graph.dag().Edges(), ElementsAre(std::pair(0, 1), std::pair(1, 2)));
  EXPECT_FALSE(profile->piper.has_value());
  EXPECT_TRUE(profile->warnings.empty());
}

TEST(PipeDreamTest, TheBatchOptionSaysWhatASampleIs) {
  const auto profile = ImportPipeDream(kProfile, "small", {.profile_batch = 3});
  ASSERT_TRUE(profile.ok()) << profile.status();
  const auto costs = MakeAnalyticCostModel(profile->graph);
  const OperatorTime one = costs->Time(NodeId(0), {}, 1);
  EXPECT_EQ(one.forward, 500'000);
  EXPECT_EQ(one.backward, 750'000);
  EXPECT_EQ(one.backward_weight, 375'000);  // It has parameters: the halves are equal.
  EXPECT_EQ(one.backward_input, 375'000);
}

TEST(PipeDreamTest, AFileOfInputsOnlyIsRefused) {
  const auto profile = ImportPipeDream(
      "a -- Input -- forward_compute_time=0, backward_compute_time=0, activation_size=0, "
      "parameter_size=0",
      "inputs.txt");
  EXPECT_EQ(std::string(profile.status().message()), "inputs.txt: no node is left to plan");
}

TEST(PipeDreamTest, ACycleIsNamed) {
  const std::string figures =
      " -- f -- forward_compute_time=0, backward_compute_time=0, activation_size=0, "
      "parameter_size=0\n";
  const auto profile =
      ImportPipeDream("a" + figures + "b" + figures + "\ta -- b\n\tb -- a\n", "ring.txt");
  EXPECT_EQ(profile.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(profile.status().message()), "ring.txt: nodes: cycle through a -> b -> a");
}

void ExpectOperators(const std::string& name, int32_t operators) {
  const auto profile = ReadProfile(ProfileFormat::kPipeDream, SharedGraph(name));
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->graph.size(), operators) << name;
  for (const Node& node : profile->graph.nodes()) {
    EXPECT_NE(node.module.substr(0, 5), "Input") << name << " " << node.name;
  }
}

TEST(PipeDreamTest, SyntheticProfiles) {
  ExpectOperators("synthetic/mmt4_op.graph.txt", 103);
  ExpectOperators("synthetic/vgg16.graph.txt", 22);
}

// With the operators the original's planner sees.
TEST(PipeDreamTest, PublishedProfiles) {
  const std::pair<const char*, int32_t> files[] = {
      {"pipedream/alexnet.graph.txt", 22},       {"pipedream/gnmt.graph.txt", 37},
      {"pipedream/inception_v3.graph.txt", 325}, {"pipedream/resnet50.graph.txt", 176},
      {"pipedream/resnext50.graph.txt", 176},    {"pipedream/vgg16.graph.txt", 40}};
  for (const auto& [name, operators] : files) {
    STAGEWRIGHT_SHARED_GRAPH_OR_SKIP(path, name);
    ExpectOperators(name, operators);
  }
}

}  // namespace
}  // namespace stagewright
