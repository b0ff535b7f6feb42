#include "common/graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/graph_builder.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"

namespace stagewright {
namespace {

using testing::Batched;
using ::testing::ElementsAre;
using testing::Fixed;
using testing::GraphBuilder;
using ::testing::IsEmpty;
using testing::NodeOf;
using testing::RandomGraph;
using testing::Rng;

// x -> linear -> relu -> loss, with one spare parameter.
GraphBuilder Small() {
  GraphBuilder builder("small");
  const Argument x = builder.Feature("x", {4});
  const Argument h = builder.Linear(x, 4, 3);
  const Argument y = builder.Add("aten.relu.default", {h}, {3});
  builder.Loss(y, {3});
  return builder;
}

TEST(Graph, ListsWhatNodesRead) {
  GraphBuilder builder("reads");
  const Argument x = builder.Feature("x", {4});
  const Argument a = builder.Linear(x, 4, 4);
  const Argument b = builder.Add("aten.add.Tensor", {a, a}, {4});
  Argument::List list = {b, a, x, b};
  const Argument c = builder.Add("aten.cat.default", {{std::move(list)}, {SymInt{0, 1}}}, {16});
  const Graph graph = builder.Build();
  EXPECT_THAT(graph.Values(NodeOf(a)), IsEmpty());
  EXPECT_THAT(graph.Parameters(NodeOf(a)), ElementsAre(ParameterId(0), ParameterId(1)));
  EXPECT_THAT(graph.Inputs(NodeOf(a)), ElementsAre(InputId(0)));
  EXPECT_THAT(graph.Values(NodeOf(b)), ElementsAre(ValueRef{NodeOf(a), 0}));
  EXPECT_THAT(graph.Values(NodeOf(c)), ElementsAre(ValueRef{NodeOf(b), 0}, ValueRef{NodeOf(a), 0}));
  EXPECT_THAT(graph.dag().Predecessors(NodeOf(c).value()),
              ElementsAre(NodeOf(a).value(), NodeOf(b).value()));
  EXPECT_FALSE(graph.executable()) << "there is no loss to run";
  EXPECT_TRUE(Small().Build().executable());
}

TEST(Graph, BackwardFollowsTrainableParameters) {
  GraphBuilder builder("frozen");
  const Argument x = builder.Feature("x", {4});
  const Argument w = builder.Weight("w", {4, 4}, /*trainable=*/false);
  const Argument a = builder.Add("aten.linear.default", {x, w}, {4});
  const Argument b = builder.Linear(a, 4, 4);
  const Argument c = builder.Add("aten.relu.default", {b}, {4});
  const Argument d = builder.AddWith("aten.argmax.default", {c}, {Batched({}, DType::kInt64)});
  const Graph graph = builder.Build();
  EXPECT_FALSE(graph.needs_backward(NodeOf(a)));
  EXPECT_TRUE(graph.needs_backward(NodeOf(b)));
  EXPECT_TRUE(graph.needs_backward(NodeOf(c)));
  EXPECT_FALSE(graph.needs_backward(NodeOf(d))) << "integers have no gradient";
}

TEST(Graph, BackwardComesFromTheLoss) {
  GraphBuilder builder("two heads");
  const Argument x = builder.Feature("x", {4});
  const Argument trunk = builder.Linear(x, 4, 4);
  const Argument head = builder.Linear(trunk, 4, 4);
  const Argument aside = builder.Linear(trunk, 4, 4);
  EXPECT_TRUE(builder.Build().needs_backward(NodeOf(aside))) << "without a loss, all could be it";
  builder.Loss(head, {4});
  const Graph graph = builder.Build();
  EXPECT_TRUE(graph.needs_backward(NodeOf(trunk)));
  EXPECT_TRUE(graph.needs_backward(NodeOf(head)));
  EXPECT_TRUE(graph.needs_backward(graph.loss()->node));
  EXPECT_FALSE(graph.needs_backward(NodeOf(aside))) << "no gradient comes back from it";
}

TEST(Graph, PlanningOnlyNodesNeedNoArguments) {
  GraphData data;
  data.nodes.resize(2);
  data.nodes[0].name = "a";
  data.nodes[0].cost = ProfiledCost{10, 20, 30, 40, 1};
  data.nodes[1].name = "b";
  data.nodes[1].cost = ProfiledCost{10, 20, 30, 40, 1};
  data.nodes[1].after = {NodeId(0)};
  const auto graph = Graph::Create(data);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(graph->dag().Predecessors(1), ElementsAre(0));
  EXPECT_FALSE(graph->executable());
  EXPECT_TRUE(graph->needs_backward(NodeId(1)));
}

struct BadGraph {
  const char* name;
  std::function<void(GraphData&)> spoil;
  const char* message;
};

class BadGraphTest : public ::testing::TestWithParam<BadGraph> {};

TEST_P(BadGraphTest, IsRefusedWithItsReason) {
  GraphData data = Small().data;
  GetParam().spoil(data);
  const auto graph = Graph::Create(data);
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(graph.status().message(), GetParam().message);
}

ValueRef At(int64_t node, int32_t output = 0) { return {NodeId(node), output}; }

const BadGraph kBadGraphs[] = {
    {"Empty", [](GraphData& g) { g.nodes.clear(); }, "nodes: the graph is empty"},
    {"Cyclic", [](GraphData& g) { g.nodes[0].args[0] = {At(1)}; },
     "nodes: cycle through n0 -> n1 -> n0"},
    {"SelfLoop", [](GraphData& g) { g.nodes[1].args[0] = {At(1)}; },
     "nodes: cycle through n1 -> n1"},
    {"AfterItself", [](GraphData& g) { g.nodes[0].after = {NodeId(2)}; },
     "nodes: cycle through n0 -> n1 -> n2 -> n0"},
    {"NoName", [](GraphData& g) { g.nodes[1].name = ""; }, "nodes[1].name is empty"},
    {"SameName", [](GraphData& g) { g.nodes[2].name = "n0"; },
     "nodes[2] \"n0\": the name is used twice"},
    {"NoTarget", [](GraphData& g) { g.nodes[1].target = ""; }, "nodes[1] \"n1\".target is empty"},
    {"NoShape", [](GraphData& g) { g.nodes[0].outputs.clear(); },
     "nodes[0] \"n0\".outputs: the shape of its output is missing"},
    {"NegativeShape",
     [](GraphData& g) {
       g.nodes[0].outputs[0].shape[1] = {0, -3};
     },
     "nodes[0] \"n0\".outputs[0].shape: dimension 0 * samples + -3 is negative"},
    {"ShrinkingShape",
     [](GraphData& g) {
       g.nodes[0].outputs[0].shape[1] = {-1, 9};
     },
     "nodes[0] \"n0\".outputs[0].shape: dimension -1 * samples + 9 is negative"},
    {"HugeShape",
     [](GraphData& g) {
       g.nodes[0].outputs[0].shape = {{1, 0}, {0, int64_t{1} << 40}, {0, int64_t{1} << 40}};
     },
     "nodes[0] \"n0\".outputs[0].shape: 1.20893e+24 elements per sample overflow"},
    {"UnknownNode", [](GraphData& g) { g.nodes[1].args[0] = {At(9)}; },
     "nodes[1] \"n1\".args: node 9 does not exist"},
    {"InvalidNode", [](GraphData& g) { g.nodes[1].args[0] = {At(-1)}; },
     "nodes[1] \"n1\".args: node -1 does not exist"},
    {"UnknownOutput", [](GraphData& g) { g.nodes[1].args[0] = {At(0, 1)}; },
     "nodes[1] \"n1\".args: output 1 of node \"n0\" does not exist"},
    {"UnknownNodeInList",
     [](GraphData& g) {
       g.nodes[1].args[0] = {Argument::List{{At(0)}, {At(7)}}};
     },
     "nodes[1] \"n1\".args: node 7 does not exist"},
    {"UnknownParameter", [](GraphData& g) { g.nodes[0].args[1] = {ParameterId(5)}; },
     "nodes[0] \"n0\".args: parameter 5 does not exist"},
    {"UnknownInput",
     [](GraphData& g) {
       g.nodes[0].kwargs = {{"x", {InputId(3)}}};
     },
     "nodes[0] \"n0\".args: input 3 does not exist"},
    {"UnknownAfter", [](GraphData& g) { g.nodes[0].after = {NodeId(3)}; },
     "nodes[0] \"n0\".after: node 3 does not exist"},
    {"NegativeCost",
     [](GraphData& g) {
       g.nodes[0].cost = ProfiledCost{1, -2, 3, 4, 1};
     },
     "nodes[0] \"n0\".cost.backward_ns is negative"},
    {"ZeroSamplesProfiled",
     [](GraphData& g) {
       g.nodes[0].cost = ProfiledCost{1, 2, 3, 4, 0};
     },
     "nodes[0] \"n0\".cost.profiled_samples is negative"},
    {"HugeCost",
     [](GraphData& g) {
       g.nodes[0].cost = ProfiledCost{1, 2, int64_t{1} << 60, 4, 1};
     },
     "nodes[0] \"n0\".cost.activation_bytes overflows"},
    {"ParameterWithoutName", [](GraphData& g) { g.parameters[0].name = ""; },
     "parameters[0].name is empty"},
    {"SameParameter", [](GraphData& g) { g.parameters[1].name = g.parameters[0].name; },
     "parameters[1] \"linear0.weight\": the name is used twice"},
    {"AliasOfAnother", [](GraphData& g) { g.parameters[1].aliases = {"linear0.weight"}; },
     "parameters[1] \"linear0.bias\".aliases: \"linear0.weight\" is used twice"},
    {"NegativeParameter", [](GraphData& g) { g.parameters[0].shape = {-1}; },
     "parameters[0] \"linear0.weight\".shape: dimension 0 * samples + -1 is negative"},
    {"IntegerParameterTrains", [](GraphData& g) { g.parameters[0].dtype = DType::kInt64; },
     "parameters[0] \"linear0.weight\" is trainable but not floating-point"},
    {"InputWithoutBatch", [](GraphData& g) { g.inputs[0].meta = Fixed({4}); },
     "inputs[0] \"x\".meta: the first dimension must be the batch, and only it"},
    {"SameInput", [](GraphData& g) { g.inputs[1].name = "x"; },
     "inputs[1] \"x\": the name is empty or used twice"},
    {"LossIsNoScalar", [](GraphData& g) { g.loss = At(1); },
     "loss: node \"n1\" is not a floating-point scalar"},
    {"LossIsInteger", [](GraphData& g) { g.nodes[2].outputs[0].dtype = DType::kInt32; },
     "loss: node \"n2\" is not a floating-point scalar"},
    {"UnknownLoss", [](GraphData& g) { g.loss = At(3); }, "loss: node 3 does not exist"},
    {"UnknownPrediction", [](GraphData& g) { g.prediction = At(1, 4); },
     "prediction: output 4 of node \"n1\" does not exist"},
};

// Small, with a mask of which the loss reads the sum over the batch, and a counter.
GraphData Stateful() {
  GraphBuilder builder = Small();
  GraphData& data = builder.data;
  data.parameters.push_back({"count", DType::kInt64, {}, false, true, {}});
  data.parameters.push_back(
      {"weights", DType::kFloat32, {2}, false, true, {}, std::string(8, 'w')});
  Node total;
  total.name = "total";
  total.target = "aten.sum.default";
  total.args = {{InputId(1)}, {ParameterId(3)}};
  total.outputs = {Fixed({})};
  data.totals = {{total}, {{NodeId(0), 0}}};
  data.nodes[2].args.push_back({TotalId(0)});
  Node counted;
  counted.name = "counted";
  counted.target = "aten.add.Tensor";
  counted.args = {{ParameterId(2)}, {SymInt{0, 1}}};
  counted.outputs = {Fixed({}, DType::kInt64)};
  data.nodes.push_back(counted);
  data.state_updates = {{ParameterId(2), At(3)}};
  data.nodes[0].outputs[0].layout = SampleLayout{};
  data.samples = {2, 64};
  return data;
}

TEST(Graph, KnowsTotalsAndStates) {
  const auto graph = Graph::Create(Stateful());
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(graph->Totals(NodeId(2)), ElementsAre(TotalId(0)));
  EXPECT_THAT(graph->Totals(NodeId(1)), IsEmpty());
  EXPECT_EQ(graph->meta(TotalId(0)), Fixed({}));
  EXPECT_TRUE(graph->is_state(ParameterId(2)));
  EXPECT_FALSE(graph->is_state(ParameterId(3)));
  EXPECT_EQ(graph->samples(), (SampleBounds{2, 64}));
  EXPECT_TRUE(graph->executable());
}

class BadStateTest : public ::testing::TestWithParam<BadGraph> {};

TEST_P(BadStateTest, IsRefusedWithItsReason) {
  GraphData data = Stateful();
  GetParam().spoil(data);
  const auto graph = Graph::Create(data);
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(graph.status().message(), GetParam().message);
}

void SetLayout(GraphData& g, std::vector<SymInt> shape, SampleLayout layout) {
  g.nodes[0].outputs[0].shape = std::move(shape);
  g.nodes[0].outputs[0].layout = layout;
}

const BadGraph kBadStates[] = {
    {"LayoutOfNoDimension",
     [](GraphData& g) {
       SetLayout(g, {{1, 0}}, {1, 1});
     },
     "nodes[0] \"n0\".outputs[0].samples: dimension 1 does not exist"},
    {"LayoutOfNegativeDimension",
     [](GraphData& g) {
       SetLayout(g, {{1, 0}}, {-1, 1});
     },
     "nodes[0] \"n0\".outputs[0].samples: dimension -1 does not exist"},
    {"LayoutOfAFixedDimension",
     [](GraphData& g) {
       SetLayout(g, {{0, 3}}, {0, 1});
     },
     "nodes[0] \"n0\".outputs[0].samples: dimension 0 has 0 * samples + 3 entries, not 1 * samples "
     "* inner"},
    {"LayoutThatDoesNotDivide",
     [](GraphData& g) {
       SetLayout(g, {{6, 0}}, {0, 4});
     },
     "nodes[0] \"n0\".outputs[0].samples: dimension 0 has 6 * samples + 0 entries, not 4 * samples "
     "* inner"},
    {"LayoutWithoutOuter",
     [](GraphData& g) {
       SetLayout(g, {{6, 0}}, {0, 0});
     },
     "nodes[0] \"n0\".outputs[0].samples: dimension 0 has 6 * samples + 0 entries, not 0 * samples "
     "* inner"},
    {"LayoutWithOffset",
     [](GraphData& g) {
       SetLayout(g, {{1, 1}}, {0, 1});
     },
     "nodes[0] \"n0\".outputs[0].samples: dimension 0 has 1 * samples + 1 entries, not 1 * samples "
     "* inner"},
    {"SamplesInTwoDimensions",
     [](GraphData& g) {
       SetLayout(g, {{1, 0}, {1, 0}}, {0, 1});
     },
     "nodes[0] \"n0\".outputs[0].samples: dimension 1 depends on the number of samples, too"},
    {"LayoutOfMixed", [](GraphData& g) { g.nodes[0].outputs[0].mixed = true; },
     "nodes[0] \"n0\".outputs[0].samples: given for a value that is mixed"},
    {"MixedInput", [](GraphData& g) { g.inputs[0].meta.mixed = true; },
     "inputs[0] \"x\".meta: the first dimension must be the batch, and only it"},
    {"TransposedInput",
     [](GraphData& g) {
       g.inputs[0].meta = {DType::kFloat32, {{0, 4}, {1, 0}}, SampleLayout{1, 1}};
     },
     "inputs[0] \"x\".meta: the first dimension must be the batch, and only it"},
    {"UnknownTotal", [](GraphData& g) { g.nodes[1].args[0] = {TotalId(1)}; },
     "nodes[1] \"n1\".args: total 1 does not exist"},
    {"TotalWithoutTarget", [](GraphData& g) { g.totals.nodes[0].target = ""; },
     "totals.nodes[0] \"total\": target or outputs are missing"},
    {"TotalOfALaterNode", [](GraphData& g) { g.totals.nodes[0].args[0] = {At(0)}; },
     "totals.nodes[0] \"total\".args: node 0 is not one before it"},
    {"TotalOfATotal", [](GraphData& g) { g.totals.nodes[0].args[0] = {TotalId(0)}; },
     "totals.nodes[0] \"total\".args: a total does not read totals"},
    {"TotalOfNoParameter", [](GraphData& g) { g.totals.nodes[0].args[0] = {ParameterId(9)}; },
     "totals.nodes[0] \"total\".args: parameter 9 does not exist"},
    {"TotalOfATrainedParameter", [](GraphData& g) { g.totals.nodes[0].args[0] = {ParameterId(0)}; },
     "totals.nodes[0] \"total\".args: parameter \"linear0.weight\" changes"},
    {"TotalOfAState", [](GraphData& g) { g.totals.nodes[0].args[0] = {ParameterId(2)}; },
     "totals.nodes[0] \"total\".args: parameter \"count\" changes"},
    {"TotalOfNoInput", [](GraphData& g) { g.totals.nodes[0].args[0] = {InputId(7)}; },
     "totals.nodes[0] \"total\".args: input 7 does not exist"},
    {"TotalOfNoNode", [](GraphData& g) { g.totals.values[0].node = NodeId(1); },
     "totals.values[0] does not exist"},
    {"TotalOfNoOutput", [](GraphData& g) { g.totals.values[0].output = 1; },
     "totals.values[0] does not exist"},
    {"TotalPerSample", [](GraphData& g) { g.totals.nodes[0].outputs[0] = Batched({}); },
     "totals.values[0]: its shape depends on the number of samples"},
    {"StateOfNoParameter", [](GraphData& g) { g.state_updates[0].parameter = ParameterId(9); },
     "state_updates[0]: parameter 9 does not exist"},
    {"StateThatTrains", [](GraphData& g) { g.state_updates[0].parameter = ParameterId(0); },
     "state_updates[0]: \"linear0.weight\" is trainable"},
    {"StateUpdatedTwice", [](GraphData& g) { g.state_updates.push_back(g.state_updates[0]); },
     "state_updates[1]: \"count\" is updated twice"},
    {"StateOfNoNode", [](GraphData& g) { g.state_updates[0].value = At(9); },
     "state_updates[0].value: node 9 does not exist"},
    {"StateOfAnotherType", [](GraphData& g) { g.parameters[2].dtype = DType::kInt32; },
     "state_updates[0]: \"count\" and node \"counted\" differ in shape or type"},
    {"StateOfAnotherShape", [](GraphData& g) { g.parameters[2].shape = {1}; },
     "state_updates[0]: \"count\" and node \"counted\" differ in shape or type"},
    {"NoSamples", [](GraphData& g) { g.samples.least = 0; }, "samples: from 0 to 64 is no range"},
    {"NoRangeOfSamples", [](GraphData& g) { g.samples.most = 1; },
     "samples: from 2 to 1 is no range"},
    {"ConstantThatTrains", [](GraphData& g) { g.parameters[3].trainable = true; },
     "parameters[3] \"weights\".data: 8 bytes for a trainable tensor of 8"},
    {"ConstantOfAnotherSize", [](GraphData& g) { g.parameters[3].data->pop_back(); },
     "parameters[3] \"weights\".data: 7 bytes for a tensor of 8"},
};

INSTANTIATE_TEST_SUITE_P(Graph, BadStateTest, ::testing::ValuesIn(kBadStates),
                         [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(Graph, BadGraphTest, ::testing::ValuesIn(kBadGraphs),
                         [](const auto& test) { return test.param.name; });

TEST(Graph, RandomGraphsAreConsistent) {
  Rng rng(5);
  for (int i = 0; i < 100; ++i) {
    const Graph graph = RandomGraph(rng, 40);
    ASSERT_TRUE(graph.executable());
    for (int32_t v = 0; v < graph.size(); ++v) {
      for (const ValueRef& value : graph.Values(NodeId(v))) {
        const auto before = graph.dag().Predecessors(v);
        ASSERT_TRUE(std::binary_search(before.begin(), before.end(), value.node.value()));
      }
    }
  }
}

}  // namespace
}  // namespace stagewright
