#include "common/graph/operator_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "common/cost/cost_model.h"
#include "common/cost/operations/flops.h"
#include "common/graph/series_parallel.h"
#include "tests/support/graph_builder.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/stopwatch.h"

namespace stagewright {
namespace {

using testing::Batched;
using ::testing::ElementsAre;
using testing::Fixed;
using testing::GraphBuilder;
using ::testing::IsEmpty;
using testing::NodeOf;
using testing::Number;
using testing::RandomGraph;
using testing::Rng;
using testing::Uniform;

// Operations of the forward pass: a weight without launch overheads.
std::vector<double> FlopWeights(const Graph& graph) {
  std::vector<double> weights;
  for (int32_t v = 0; v < graph.size(); ++v) {
    weights.push_back(ForwardFlops(graph, NodeId(v), 8));
  }
  return weights;
}

OperatorGraph CoarsenByFlops(const Graph& graph) {
  auto operators = Coarsen(graph, FlopWeights(graph));
  EXPECT_TRUE(operators.ok()) << operators.status();
  return *std::move(operators);
}

Argument Relu(GraphBuilder& builder, const Argument& x, int64_t width) {
  return builder.Add("aten.relu.default", {x}, {width});
}

TEST(Coarsen, LightNodesJoinTheirProducer) {
  GraphBuilder builder("chain");
  Argument h = builder.Feature("x", {8});
  for (int i = 0; i < 4; ++i) h = Relu(builder, builder.Linear(h, 8, 8), 8);
  builder.Loss(h, {8});
  const Graph graph = builder.Build();
  const OperatorGraph operators = CoarsenByFlops(graph);
  ASSERT_EQ(operators.size(), 4);
  EXPECT_THAT(operators.op(OperatorId(0)).nodes, ElementsAre(NodeId(0), NodeId(1)));
  EXPECT_THAT(operators.op(OperatorId(3)).nodes, ElementsAre(NodeId(6), NodeId(7), NodeId(8)));
  EXPECT_EQ(operators.op(OperatorId(1)).name, "n2");
  EXPECT_EQ(ToString(Decompose(operators.dag())), "S(0 1 2 3)");
}

TEST(Coarsen, BranchesStayApartAndJoinAtTheHead) {
  GraphBuilder builder("branches");
  const Argument x = builder.Feature("x", {32});
  Argument::List ends;
  for (int b = 0; b < 4; ++b) {
    Argument h =
        builder.Add("aten.slice.Tensor", {x, Number(1), Number(8 * b), Number(8 * b + 8)}, {8});
    h = Relu(builder, builder.Linear(h, 8, 8), 8);
    ends.push_back(Relu(builder, builder.Linear(h, 8, 8), 8));
  }
  const Argument joined = builder.Add("aten.cat.default", {{ends}, Number(1)}, {32});
  builder.Loss(builder.Linear(joined, 32, 4), {4});
  const Graph graph = builder.Build();
  const OperatorGraph operators = CoarsenByFlops(graph);
  EXPECT_EQ(ToString(Decompose(operators.dag())), "S(P(S(0 1) S(2 3) S(4 5) S(6 7)) 8)");
  EXPECT_THAT(operators.replicated(), IsEmpty()) << "each slice has one reader";
  EXPECT_EQ(operators.owner(NodeOf(joined)), operators.owner(graph.loss()->node));
}

TEST(Coarsen, ResidualAdditionJoinsTheLaterOperand) {
  GraphBuilder builder("residual");
  const Argument x = builder.Feature("x", {8});
  const Argument a = builder.Linear(x, 8, 8);
  const Argument b = builder.Linear(a, 8, 8);
  const Argument sum = builder.Add("aten.add.Tensor", {b, a}, {8});
  const Argument c = builder.Linear(sum, 8, 8);
  builder.Loss(c, {8});
  const Graph graph = builder.Build();
  const OperatorGraph operators = CoarsenByFlops(graph);
  ASSERT_EQ(operators.size(), 3);
  EXPECT_EQ(operators.owner(NodeOf(sum)), operators.owner(NodeOf(b)));
}

TEST(Coarsen, ProjectionsAndAttentionAreOneOperator) {
  GraphBuilder builder("attention");
  Argument h = builder.Feature("x", {16, 32});
  std::vector<Argument> outs;
  for (int layer = 0; layer < 2; ++layer) {
    std::vector<Argument> heads;
    for (int i = 0; i < 3; ++i) {
      const Argument w = builder.Weight(absl::StrCat("p", layer, i), {32, 32});
      const Argument p = builder.Add("aten.linear.default", {h, w}, {16, 32});
      heads.push_back(builder.Add("aten.view.default", {p, Number(-1)}, {2, 16, 16}));
    }
    const Argument attended =
        builder.Add("aten.scaled_dot_product_attention.default", heads, {2, 16, 16});
    const Argument flat = builder.Add("aten.view.default", {attended, Number(-1)}, {16, 32});
    const Argument w = builder.Weight(absl::StrCat("out", layer), {32, 32});
    h = builder.Add("aten.linear.default", {flat, w}, {16, 32});
    const Argument up = builder.Weight(absl::StrCat("up", layer), {128, 32});
    const Argument down = builder.Weight(absl::StrCat("down", layer), {32, 128});
    h = builder.Add("aten.linear.default", {h, up}, {16, 128});
    h = builder.Add("aten.linear.default", {h, down}, {16, 32});
  }
  builder.Loss(h, {16, 32});
  const OperatorGraph operators = CoarsenByFlops(builder.Build());
  EXPECT_EQ(ToString(Decompose(operators.dag())), "S(0 1 2 3 4 5)")
      << "attention, up and down of two layers";
}

TEST(Coarsen, AttentionAcrossBranchesKeepsThemApart) {
  GraphBuilder builder("cross");
  const Argument x = builder.Feature("x", {16, 32});
  const Argument y = builder.Feature("y", {16, 32});
  const Argument q =
      builder.Add("aten.linear.default", {x, builder.Weight("q", {32, 32})}, {16, 32});
  const Argument k =
      builder.Add("aten.linear.default", {y, builder.Weight("k", {32, 32})}, {16, 32});
  const Argument a = builder.Add("aten.scaled_dot_product_attention.default", {q, k, k}, {16, 32});
  builder.Loss(a, {16, 32});
  const OperatorGraph operators = CoarsenByFlops(builder.Build());
  EXPECT_NE(operators.owner(NodeOf(q)), operators.owner(NodeOf(k)));
}

// What a call of it takes was measured, in a model so small that it counts.
TEST(Coarsen, AViewOfTheInputIsReplicatedWhateverItsWeight) {
  GraphBuilder builder("view");
  const Argument x = builder.Feature("x", {8});
  const Argument view = builder.Add("aten.alias.default", {x}, {8});
  const Argument a = builder.Linear(view, 8, 8);
  const Argument b = builder.Linear(view, 8, 8);
  builder.Loss(builder.Add("aten.add.Tensor", {a, b}, {8}), {8});
  const Graph graph = builder.Build();
  const auto operators = Coarsen(graph, std::vector<double>(graph.size(), 1.0));
  ASSERT_TRUE(operators.ok()) << operators.status();
  EXPECT_THAT(operators->replicated(), ElementsAre(NodeOf(view)));
}

TEST(Coarsen, SharedConstantsAreReplicatedAndOwnOnesJoin) {
  GraphBuilder builder("constants");
  const Argument x = builder.Feature("x", {8});
  const Argument ones = builder.AddWith("aten.ones.default", {Number(8)}, {Fixed({8})});
  const Argument mask = builder.AddWith("aten.neg.default", {ones}, {Fixed({8})});
  const Argument own = builder.AddWith("aten.arange.default", {Number(8)}, {Fixed({8})});
  const Argument a = builder.Linear(x, 8, 8);
  const Argument am = builder.Add("aten.mul.Tensor", {a, mask}, {8});
  const Argument b = builder.Linear(am, 8, 8);
  const Argument bm = builder.Add("aten.mul.Tensor", {b, mask}, {8});
  const Argument bo = builder.Add("aten.mul.Tensor", {bm, own}, {8});
  builder.Loss(bo, {8});
  const Graph graph = builder.Build();
  const OperatorGraph operators = CoarsenByFlops(graph);
  EXPECT_EQ(operators.size(), 2);
  EXPECT_THAT(operators.replicated(), ElementsAre(NodeOf(ones), NodeOf(mask)));
  EXPECT_FALSE(operators.owner(NodeOf(mask)).valid());
  EXPECT_EQ(operators.owner(NodeOf(own)), operators.owner(NodeOf(b)));
  EXPECT_THAT(ReplicatedInto(graph, operators, {NodeOf(am)}),
              ElementsAre(NodeOf(ones), NodeOf(mask)));
  EXPECT_THAT(ReplicatedInto(graph, operators, {NodeOf(b)}), IsEmpty());
}

TEST(Coarsen, WhatCannotBeCutStaysTogether) {
  GraphBuilder builder("uncuttable");
  const Argument x = builder.Feature("x", {8});
  const Argument w = builder.Weight("w", {8, 8});
  // One transposed weight read by two layers far apart: both, and the one between, are united.
  const Argument wt = builder.AddWith("aten.t.default", {w}, {Fixed({8, 8})});
  const Argument a = builder.Add("aten.mm.default", {x, wt}, {8});
  const Argument b = builder.Linear(a, 8, 8);
  const Argument c = builder.Add("aten.mm.default", {b, wt}, {8});
  const Argument d = builder.Linear(c, 8, 32);
  builder.Loss(d, {32});
  const Graph graph = builder.Build();
  const OperatorGraph operators = CoarsenByFlops(graph);
  ASSERT_EQ(operators.size(), 2);
  EXPECT_EQ(operators.owner(NodeOf(a)), operators.owner(NodeOf(c)));
  EXPECT_EQ(operators.owner(NodeOf(a)), operators.owner(NodeOf(b)));
  EXPECT_NE(operators.owner(NodeOf(a)), operators.owner(NodeOf(d)));
}

TEST(Coarsen, ManySmallLayersBecomeSeveralOperators) {
  GraphBuilder builder("skewed");
  Argument h = builder.Feature("x", {8});
  for (int i = 0; i < 64; ++i) h = builder.Linear(h, 8, 8);
  h = builder.Linear(h, 8, 256);
  h = builder.Linear(h, 256, 256);
  builder.Loss(h, {256});
  const OperatorGraph operators = CoarsenByFlops(builder.Build());
  EXPECT_GE(operators.size(), 3);
  EXPECT_LE(operators.size(), 12);
}

TEST(Coarsen, RefusesBadWeights) {
  GraphBuilder builder("bad");
  builder.Loss(builder.Linear(builder.Feature("x", {8}), 8, 8), {8});
  const Graph graph = builder.Build();
  EXPECT_EQ(Coarsen(graph, {1}).status().message(), "weight: 1 values for 2 nodes");
  EXPECT_EQ(Coarsen(graph, {1, std::nan("")}).status().message(),
            "weight of node \"n1\" is nan; it must be finite and not negative");
  EXPECT_EQ(Coarsen(graph, {-1, 1}).status().message(),
            "weight of node \"n0\" is -1; it must be finite and not negative");
}

// All that OperatorGraph promises.
void CheckOperators(const Graph& graph, const OperatorGraph& operators) {
  std::vector<int32_t> seen(graph.size(), 0);
  for (int32_t i = 0; i < operators.size(); ++i) {
    const Operator& op = operators.op(OperatorId(i));
    ASSERT_FALSE(op.nodes.empty());
    ASSERT_FALSE(op.name.empty());
    std::vector<bool> member(graph.size(), false);
    for (NodeId id : op.nodes) {
      ++seen[id.index()];
      member[id.index()] = true;
      ASSERT_EQ(operators.owner(id), OperatorId(i));
    }
    ASSERT_TRUE(IsConvex(graph.dag(), member)) << op.name;
    ASSERT_EQ(operators.dag().order()[i], i) << "operators are numbered topologically";
  }
  for (NodeId id : operators.replicated()) {
    ++seen[id.index()];
    ASSERT_FALSE(operators.owner(id).valid());
    ASSERT_FALSE(graph.needs_backward(id));
    for (int32_t u : graph.dag().Predecessors(id.value())) {
      ASSERT_FALSE(operators.owner(NodeId(u)).valid()) << "replicated nodes read only such";
    }
  }
  ASSERT_THAT(seen, ::testing::Each(1));
  ASSERT_TRUE(operators.owner(graph.loss()->node).valid());
  for (int32_t v = 0; v < graph.size(); ++v) {
    const OperatorId reader = operators.owner(NodeId(v));
    if (!reader.valid()) continue;
    for (const ValueRef& value : graph.Values(NodeId(v))) {
      const OperatorId owner = operators.owner(value.node);
      if (!owner.valid() || owner == reader) continue;
      ASSERT_TRUE(graph.meta(value).IsBatched()) << graph.node(value.node).name;
      const auto before = operators.dag().Predecessors(reader.value());
      ASSERT_TRUE(std::binary_search(before.begin(), before.end(), owner.value()));
    }
  }
}

// Rotary positions: a buffer, and what follows from it alone.
TEST(Coarsen, ConstantsOfBuffersAreReplicated) {
  GraphBuilder builder("rotary");
  const Argument x = builder.Feature("x", {8});
  const Argument frequencies = builder.Weight("inv_freq", {8}, /*trainable=*/false);
  const Argument cosine = builder.AddWith("aten.cos.default", {frequencies}, {Fixed({8})});
  Argument h = x;
  for (int i = 0; i < 3; ++i)
    h = builder.Add("aten.mul.Tensor", {builder.Linear(h, 8, 8), cosine}, {8});
  builder.Loss(h, {8});
  GraphData data = builder.data;
  const OperatorGraph operators = CoarsenByFlops(*Graph::Create(data));
  EXPECT_THAT(operators.replicated(), ElementsAre(NodeOf(cosine)));
  EXPECT_EQ(operators.size(), 3);
  // If training changes the buffer, all that reads it is one operator.
  const Argument next = builder.AddWith("aten.mul.Tensor", {frequencies, {0.5}}, {Fixed({8})});
  builder.data.state_updates = {
      {std::get<ParameterId>(frequencies.value), std::get<ValueRef>(next.value)}};
  const Graph changing = builder.Build();
  const OperatorGraph tied = CoarsenByFlops(changing);
  EXPECT_THAT(tied.replicated(), IsEmpty());
  EXPECT_EQ(tied.owner(NodeOf(cosine)), tied.owner(NodeOf(next)));
}

// Two layers read a state that the second updates.
TEST(Coarsen, ReadersAndWriterOfAStateStayTogether) {
  GraphBuilder builder("state");
  const Argument x = builder.Feature("x", {8});
  const Argument state = builder.Weight("state", {8}, /*trainable=*/false);
  Argument h = builder.Linear(x, 8, 8);
  std::vector<Argument> readers;
  for (int i = 0; i < 2; ++i) {
    readers.push_back(builder.Add("aten.add.Tensor", {h, state}, {8}));
    h = builder.Linear(builder.Linear(readers.back(), 8, 8), 8, 8);
  }
  const Argument next = builder.AddWith("aten.mul.Tensor", {state, {0.9}}, {Fixed({8})});
  builder.Loss(h, {8});
  EXPECT_NE(CoarsenByFlops(builder.Build()).owner(NodeOf(readers[0])),
            CoarsenByFlops(builder.Build()).owner(NodeOf(readers[1])));
  builder.data.state_updates = {
      {std::get<ParameterId>(state.value), std::get<ValueRef>(next.value)}};
  const Graph graph = builder.Build();
  const OperatorGraph operators = CoarsenByFlops(graph);
  CheckOperators(graph, operators);
  EXPECT_EQ(operators.owner(NodeOf(readers[0])), operators.owner(NodeOf(readers[1])));
  EXPECT_EQ(operators.owner(NodeOf(readers[0])), operators.owner(NodeOf(next)));
}

TEST(Coarsen, NormalisationsWithOneRunningMeanStayTogether) {
  GraphBuilder builder("shared");
  const Argument mean = builder.Weight("mean", {8}, /*trainable=*/false);
  const Argument variance = builder.Weight("variance", {8}, /*trainable=*/false);
  Argument h = builder.Feature("x", {8});
  std::vector<Argument> norms;
  for (int i = 0; i < 2; ++i) {
    h = builder.Linear(builder.Linear(h, 8, 8), 8, 8);
    const Argument none{None{}};
    h = builder.Add("aten.batch_norm.default",
                    {h, none, none, mean, variance, {true}, {0.1}, {1e-5}, {false}}, {8});
    norms.push_back(h);
    builder.data.nodes.back().batch_dependent = true;
  }
  builder.Loss(builder.Linear(h, 8, 8), {8});
  const Graph graph = builder.Build();
  const OperatorGraph operators = CoarsenByFlops(graph);
  CheckOperators(graph, operators);
  EXPECT_TRUE(graph.is_state(std::get<ParameterId>(mean.value)));
  EXPECT_EQ(operators.owner(NodeOf(norms[0])), operators.owner(NodeOf(norms[1])));
}

TEST(Coarsen, ACounterJoinsItsModule) {
  GraphBuilder builder("counter");
  const Argument x = builder.Feature("x", {8});
  const Argument count = builder.Weight("count", {}, /*trainable=*/false);
  const Argument next = builder.AddWith("aten.add.Tensor", {count, Number(1)}, {Fixed({})});
  std::vector<Argument> layers = {x};
  for (int i = 0; i < 3; ++i) {
    layers.push_back(builder.Linear(layers.back(), 8, 8));
    builder.data.nodes.back().module = "layer" + std::to_string(i);
  }
  builder.Loss(layers.back(), {8});
  builder.data.state_updates = {
      {std::get<ParameterId>(count.value), std::get<ValueRef>(next.value)}};
  builder.data.nodes[NodeOf(next).index()].module = "layer1";
  Graph graph = builder.Build();
  OperatorGraph operators = CoarsenByFlops(graph);
  CheckOperators(graph, operators);
  EXPECT_EQ(operators.owner(NodeOf(next)), operators.owner(NodeOf(layers[2])));
  EXPECT_EQ(operators.size(), 3);
  // Where no module has it, it goes where the loss is.
  builder.data.nodes[NodeOf(next).index()].module = "nobody";
  graph = builder.Build();
  operators = CoarsenByFlops(graph);
  EXPECT_EQ(operators.owner(NodeOf(next)), operators.owner(graph.loss()->node));
}

TEST(Coarsen, RandomGraphsKeepEveryPromise) {
  Rng rng(6);
  for (int i = 0; i < 1000; ++i) {
    const Graph graph = RandomGraph(rng, static_cast<int32_t>(Uniform(rng, 1, 60)));
    std::vector<double> weights = FlopWeights(graph);
    if (i % 2 == 1) {
      for (double& w : weights) w = static_cast<double>(Uniform(rng, 0, 1000));
    }
    const auto operators = Coarsen(graph, weights);
    ASSERT_TRUE(operators.ok()) << operators.status();
    CheckOperators(graph, *operators);
    if (HasFatalFailure()) return;
    const auto again = Coarsen(graph, weights);
    ASSERT_TRUE(again.ok());
    for (int32_t v = 0; v < graph.size(); ++v) {
      ASSERT_EQ(again->owner(NodeId(v)), operators->owner(NodeId(v)));
    }
  }
}

TEST(Coarsen, LargeGraphsAreQuick) {
  Rng rng(7);
  const Graph graph = RandomGraph(rng, 5000);
  const std::vector<double> weights = FlopWeights(graph);
  const testing::Stopwatch watch;
  const auto operators = Coarsen(graph, weights);
  const auto elapsed = watch.Elapsed();
  ASSERT_TRUE(operators.ok());
  EXPECT_LT(elapsed, std::chrono::seconds(5))
      << "a guard against quadratic time, on any machine and build";
}

TEST(OneOperatorPerNode, KeepsTheGraph) {
  Rng rng(8);
  const Graph graph = RandomGraph(rng, 20);
  const auto operators = OneOperatorPerNode(graph);
  ASSERT_TRUE(operators.ok());
  ASSERT_EQ(operators->size(), graph.size());
  EXPECT_THAT(operators->replicated(), IsEmpty());
  EXPECT_EQ(operators->dag().Edges(), graph.dag().Edges());
  EXPECT_EQ(operators->owner(NodeId(3)), OperatorId(3));
}

}  // namespace
}  // namespace stagewright
