#include "worker_daemon/profiler/operator_chain.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::GraphBuilder;
using ::testing::HasSubstr;
using testing::NodeOf;
using Part = OperatorChain::Part;

struct Chain {
  Operands operands;
  std::unique_ptr<OperatorChain> chain;
};

Chain Make(const Graph& graph, const Argument& node, int64_t samples) {
  auto operands = MakeOperands(graph, NodeOf(node), samples, {}, at::kCPU);
  EXPECT_TRUE(operands.ok()) << operands.status();
  auto chain =
      OperatorChain::Create(graph, NodeOf(node), samples, *operands, at::kCPU, Precision::kGraph);
  EXPECT_TRUE(chain.ok()) << chain.status();
  return {*std::move(operands), *std::move(chain)};
}

// The gradient that the weight of a linear operator has after so many links, whose results have
// gradients of a half.
at::Tensor Expected(const Operands& operands, const Node& node, int links) {
  const at::Tensor x = TensorOf(operands, node.args[0]);
  return 0.5 * links * x.sum(0).unsqueeze(0).expand_as(TensorOf(operands, node.args[1]));
}

TEST(OperatorChain, LinksInARowReadEachOthersResults) {
  GraphBuilder builder("row");
  const Argument first = builder.Linear(builder.Feature("x", {4}), 4, 4);
  const Argument second = builder.Linear(first, 4, 4);
  const Graph graph = builder.Build();
  const Node& node = graph.node(NodeOf(second));
  auto operands = MakeOperands(graph, NodeOf(second), 3, {}, at::kCPU);
  ASSERT_TRUE(operands.ok()) << operands.status();
  const at::Tensor x = TensorOf(*operands, node.args[0]);
  const at::Tensor weight = TensorOf(*operands, node.args[1]);
  const at::Tensor bias = TensorOf(*operands, node.args[2]);
  const auto chain = OperatorChain::Create(graph, NodeOf(second), 3, *operands, at::kCPU,
                                           Precision::kGraph, OperatorChain::Links::kInARow);
  ASSERT_TRUE(chain.ok()) << chain.status();
  ASSERT_TRUE((*chain)->Forward(2).ok());
  ASSERT_TRUE((*chain)->Backward(Part::kWhole).ok());
  const at::Tensor w = weight.detach().clone().requires_grad_();
  const at::Tensor b = bias.detach().clone().requires_grad_();
  const at::Tensor last = at::linear(at::linear(x, w, b), w, b);
  last.backward(at::full_like(last, 0.5));
  EXPECT_TRUE(at::allclose(weight.grad(), w.grad(), 1e-5));
}

class ChainOfLinears : public ::testing::TestWithParam<bool> {};

TEST_P(ChainOfLinears, AddsTheGradientOfEveryLinkToItsParameters) {
  const bool split = GetParam();
  GraphBuilder builder("linears");
  const Argument first = builder.Linear(builder.Feature("x", {6}), 6, 5);
  const Argument second = builder.Linear(first, 5, 4);
  const Graph graph = builder.Build();
  Chain made = Make(graph, second, 3);
  EXPECT_TRUE(made.chain->has_backward());
  EXPECT_TRUE(made.chain->splits());
  const Node& node = graph.node(NodeOf(second));
  for (int links : {3, 3, 5}) {
    const at::Tensor weight = TensorOf(made.operands, node.args[1]);
    weight.mutable_grad().zero_();
    ASSERT_TRUE(made.chain->Forward(links).ok());
    if (split) {
      ASSERT_TRUE(made.chain->Backward(Part::kInput).ok());
      EXPECT_EQ(weight.grad().abs().sum().item<double>(), 0);
      ASSERT_TRUE(made.chain->Backward(Part::kWeight).ok());
    } else {
      ASSERT_TRUE(made.chain->Backward(Part::kWhole).ok());
    }
    EXPECT_TRUE(at::allclose(weight.grad(), Expected(made.operands, node, links)));
  }
}
INSTANTIATE_TEST_SUITE_P(WholeAndHalves, ChainOfLinears, ::testing::Bool());

// The links take copies of the parameters in turns, of which the operands are the first.
TEST(OperatorChain, TellsOfLinksAndTakesCopiesInTurns) {
  GraphBuilder builder("copies");
  const Argument first = builder.Linear(builder.Feature("x", {6}), 6, 5);
  const Argument second = builder.Linear(first, 5, 4);
  const Graph graph = builder.Build();
  const Node& node = graph.node(NodeOf(second));
  auto operands = MakeOperands(graph, NodeOf(second), 3, {}, at::kCPU);
  ASSERT_TRUE(operands.ok()) << operands.status();
  int told = 0;
  const auto chain = OperatorChain::Create(graph, NodeOf(second), 3, *operands, at::kCPU,
                                           Precision::kGraph, OperatorChain::Links::kApart,
                                           {.before_link = [&] { ++told; }, .copies = 3});
  ASSERT_TRUE(chain.ok()) << chain.status();
  ASSERT_TRUE((*chain)->Forward(7).ok());
  EXPECT_EQ(told, 7);
  ASSERT_TRUE((*chain)->Backward(Part::kWhole).ok());
  EXPECT_EQ(told, 14);
  EXPECT_TRUE(at::allclose(TensorOf(*operands, node.args[1]).grad(),
                           Expected(*operands, node, /*links=*/3)));
}

// As often as it is read in the graph.
TEST(OperatorChain, AddsUpTheGradientsOfAResult) {
  GraphBuilder builder("readers");
  const Argument first = builder.Linear(builder.Feature("x", {6}), 6, 6);
  const Argument second = builder.Linear(first, 6, 6);
  builder.Loss(builder.Add("aten.mul.Tensor", {second, second}, {6}), {6});
  const Graph graph = builder.Build();
  const Node& node = graph.node(NodeOf(second));
  for (const bool told : {false, true}) {
    auto operands = MakeOperands(graph, NodeOf(second), 3, {}, at::kCPU);
    ASSERT_TRUE(operands.ok()) << operands.status();
    Surroundings surroundings;
    if (told) surroundings.before_link = [] {};
    const auto chain =
        OperatorChain::Create(graph, NodeOf(second), 3, *operands, at::kCPU, Precision::kGraph,
                              OperatorChain::Links::kApart, std::move(surroundings));
    ASSERT_TRUE(chain.ok()) << chain.status();
    ASSERT_TRUE((*chain)->Forward(1).ok());
    ASSERT_TRUE((*chain)->Backward(Part::kWhole).ok());
    EXPECT_TRUE(at::allclose(TensorOf(*operands, node.args[1]).grad(),
                             Expected(*operands, node, /*links=*/2)));
  }
}

TEST(OperatorChain, RunsWhatHasNoBackwardPassForwardOnly) {
  GraphBuilder builder("forward");
  const Argument doubled =
      builder.Add("aten.add.Tensor", {builder.Feature("x", {6}), builder.Feature("y", {6})}, {6});
  builder.Linear(doubled, 6, 6);
  const Graph graph = builder.Build();
  Chain made = Make(graph, doubled, 3);
  EXPECT_FALSE(made.chain->has_backward());
  EXPECT_FALSE(made.chain->splits());
  ASSERT_TRUE(made.chain->Forward(4).ok());
  EXPECT_TRUE(made.chain->Backward(Part::kWhole).ok());
}

TEST(OperatorChain, RunsDropoutKeyedBySample) {
  GraphBuilder builder("dropout");
  const Argument first = builder.Linear(builder.Feature("x", {6}), 6, 6);
  const Argument dropped = builder.Add("aten.dropout.default", {first, {0.5}, {true}}, {6});
  const Graph graph = builder.Build();
  Chain made = Make(graph, dropped, 3);
  EXPECT_TRUE(made.chain->has_backward());
  EXPECT_FALSE(made.chain->splits());
  EXPECT_FALSE(made.chain->trains_parameters());
  ASSERT_TRUE(made.chain->Forward(2).ok());
  EXPECT_TRUE(made.chain->Backward(Part::kWhole).ok());
}

TEST(OperatorChain, SaysWhichNodeCannotBeRun) {
  GraphBuilder builder("wrong");
  const Argument first = builder.Linear(builder.Feature("x", {6}), 6, 6);
  const Argument wrong = builder.Add("aten.relu.default", {first}, {7});
  const Graph graph = builder.Build();
  Chain made = Make(graph, wrong, 3);
  const absl::Status status = made.chain->Forward(1);
  EXPECT_THAT(status.message(), HasSubstr(graph.node(NodeOf(wrong)).name));
  EXPECT_THAT(status.message(), HasSubstr("the graph says"));
}

}  // namespace
}  // namespace stagewright
