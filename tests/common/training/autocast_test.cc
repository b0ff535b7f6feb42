// What LibTorch does is compared in tests/worker_daemon/torch/autocast_test.cc.
#include "common/training/autocast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::Batched;
using ::testing::ElementsAre;
using testing::GraphBuilder;
using testing::NodeOf;
using testing::Number;

constexpr DType kWide = DType::kFloat32;
constexpr DType kSmall = DType::kBFloat16;

TEST(Autocast, SmallerTypes) {
  EXPECT_FALSE(IsMixed(Precision::kGraph));
  EXPECT_EQ(SmallerType(Precision::kBFloat16), DType::kBFloat16);
  EXPECT_EQ(SmallerType(Precision::kFloat16), DType::kFloat16);
  EXPECT_TRUE(TakesSmallerType("aten.linear.default"));
  EXPECT_TRUE(TakesSmallerType("aten.scaled_dot_product_attention.default"));
  EXPECT_FALSE(TakesSmallerType("aten.layer_norm.default"));
}

// Linear, relu, a sum with the input, softmax, linear, loss.
struct Model {
  Model() {
    const Argument x = make.Feature("x", {4});
    linear = make.Linear(x, 4, 4);
    relu = make.Add("aten.relu.default", {linear}, {4});
    sum = make.Add("aten.add.Tensor", {relu, x}, {4});
    softmax = make.Add("aten.softmax.int", {relu, Number(1)}, {4});
    index = make.AddWith("aten.argmax.default", {relu}, {Batched({}, DType::kInt64)});
    half = make.AddWith("aten._to_copy.default", {sum}, {Batched({4}, DType::kFloat16)});
    make.Loss(make.Linear(softmax, 4, 4), {4});
  }
  GraphBuilder make{"model"};
  Argument linear, relu, sum, softmax, index, half;
};

TEST(Autocast, TypesFollowTheOperators) {
  const Model model;
  const Graph graph = model.make.Build();
  const GraphTypes types = TypesOfGraph(graph, Precision::kBFloat16);
  const auto of = [&](const Argument& value) { return types.nodes[NodeOf(value).index()]; };
  EXPECT_THAT(of(model.linear).operands, ElementsAre(kSmall)) << "the input is cast";
  EXPECT_THAT(of(model.linear).results, ElementsAre(kSmall));
  EXPECT_THAT(of(model.relu).results, ElementsAre(kSmall)) << "as its operand comes";
  EXPECT_THAT(of(model.sum).operands, ElementsAre(kSmall, kWide)) << "nothing is cast";
  EXPECT_THAT(of(model.sum).results, ElementsAre(kWide)) << "the larger of the two";
  EXPECT_TRUE(of(model.sum).widens);
  EXPECT_FALSE(of(model.relu).widens);
  EXPECT_FALSE(of(model.half).widens);
  EXPECT_THAT(of(model.softmax).operands, ElementsAre(kWide));
  EXPECT_THAT(of(model.softmax).results, ElementsAre(kWide));
  EXPECT_THAT(of(model.index).results, ElementsAre(DType::kInt64));
  EXPECT_THAT(of(model.half).results, ElementsAre(DType::kFloat16)) << "what the model asks for";
  EXPECT_TRUE(CastsWeights(graph, NodeOf(model.linear), Precision::kBFloat16));
  EXPECT_FALSE(CastsWeights(graph, NodeOf(model.linear), Precision::kGraph));
  EXPECT_FALSE(CastsWeights(graph, NodeOf(model.relu), Precision::kBFloat16));
}

TEST(Autocast, TheListsDiffer) {
  for (const AutocastList list : {AutocastList::kGpu, AutocastList::kCpu}) {
    const bool gpu = list == AutocastList::kGpu;
    EXPECT_EQ(RuleOf("aten.linear.default", list), AutocastRule::kSmaller);
    EXPECT_EQ(RuleOf("aten.mse_loss.default", list), AutocastRule::kFloat32);
    EXPECT_EQ(RuleOf("aten.relu.default", list), AutocastRule::kAsTheyCome);
    EXPECT_EQ(RuleOf("aten.lstm.input", list), AutocastRule::kVaries);
    EXPECT_EQ(RuleOf("aten.softmax.int", list),
              gpu ? AutocastRule::kFloat32 : AutocastRule::kAsTheyCome);
    EXPECT_EQ(RuleOf("aten.avg_pool3d.default", list),
              gpu ? AutocastRule::kAsTheyCome : AutocastRule::kFloat32);
  }
}

TEST(Autocast, MessagesHaveTheTypesThatAllDevicesGiveThem) {
  Model model;
  const Argument pool = model.make.Add("aten.avg_pool3d.default", {model.relu, Number(1)}, {4});
  const Argument asked =
      model.make.Add("aten.softmax.int", {model.relu, Number(1), {DType::kFloat32}}, {4});
  const Graph graph = model.make.Build();
  const MessageTypes types(graph, Precision::kBFloat16);
  const auto of = [&](const Argument& value) { return types[std::get<ValueRef>(value.value)]; };
  EXPECT_EQ(of(model.linear), kSmall);
  EXPECT_EQ(of(model.relu), kSmall);
  EXPECT_EQ(of(model.sum), kWide) << "promoted";
  EXPECT_EQ(of(model.softmax), kWide) << "on GPUs";
  EXPECT_EQ(of(pool), kWide) << "on CPUs";
  EXPECT_EQ(of(asked), kWide);
  EXPECT_EQ(of(model.index), DType::kInt64);
  EXPECT_EQ(of(model.half), DType::kFloat16);
  const auto copied = [&](const Argument& value) {
    return types.MayBeCopied(std::get<ValueRef>(value.value));
  };
  EXPECT_TRUE(copied(model.softmax)) << "CPUs have it in two bytes";
  EXPECT_TRUE(copied(pool)) << "GPUs have";
  EXPECT_FALSE(copied(model.linear));
  EXPECT_FALSE(copied(model.sum));
  EXPECT_EQ(types.SizeBytes(std::get<ValueRef>(model.linear.value), 3), 3 * 4 * 2);
  EXPECT_EQ(types.SizeBytes(std::get<ValueRef>(model.sum.value), 3), 3 * 4 * 4);
  const MessageTypes unmixed(graph, Precision::kGraph);
  for (int32_t v = 0; v < graph.size(); ++v) {
    EXPECT_EQ(unmixed[(ValueRef{NodeId(v), 0})], graph.node(NodeId(v)).outputs[0].dtype);
  }
}

TEST(Autocast, PaddingWithAConstantKeepsTheType) {
  GraphBuilder make("pad");
  const Argument linear = make.Linear(make.Feature("x", {4}), 4, 4);
  const Argument by = {Argument::List{Number(1), Number(1)}};
  const Argument constant = make.Add("aten.pad.default", {linear, by}, {6});
  const Argument mirrored =
      make.Add("aten.pad.default", {linear, by, {std::string("reflect")}}, {6});
  const Argument sum = make.Add("aten.add.Tensor", {constant, mirrored}, {6});
  make.Loss(make.Linear(sum, 6, 4), {4});
  const Graph graph = make.Build();
  const MessageTypes types(graph, Precision::kBFloat16);
  EXPECT_EQ(types[std::get<ValueRef>(constant.value)], kSmall);
  EXPECT_EQ(types[std::get<ValueRef>(mirrored.value)], kWide);
}

TEST(Autocast, TensorsOfTwoTypesAreJoinedInTheLarger) {
  GraphBuilder make("cat");
  const Argument x = make.Feature("x", {4});
  const Argument linear = make.Linear(x, 4, 4);
  const Argument cat = make.Add("aten.cat.default", {{Argument::List{linear, x}}, Number(1)}, {8});
  make.Loss(make.Linear(cat, 8, 4), {4});
  const GraphTypes types = TypesOfGraph(make.Build(), Precision::kBFloat16);
  EXPECT_THAT(types.nodes[NodeOf(cat).index()].operands, ElementsAre(kWide, kWide));
  EXPECT_THAT(types.nodes[NodeOf(cat).index()].results, ElementsAre(kWide));
}

}  // namespace
}  // namespace stagewright
