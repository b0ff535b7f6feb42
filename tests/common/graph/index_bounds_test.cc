#include "common/graph/index_bounds.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

Argument In(int id) { return {InputId(id)}; }
Argument Value(int node) { return {ValueRef{NodeId(node), 0}}; }
Argument Int(int64_t value) { return {SymInt{0, value}}; }

TensorMeta Meta(std::vector<SymInt> shape, DType dtype = DType::kInt64) {
  TensorMeta meta;
  meta.dtype = dtype;
  meta.shape = std::move(shape);
  return meta;
}

// tokens: int64[samples, 6], looked up in a table of 11 rows; labels: int64[samples, 5] of 7
// classes.
class IndexBoundsTest : public ::testing::Test {
 protected:
  IndexBoundsTest() {
    data_.inputs.push_back({"tokens", Meta({{1, 0}, {0, 6}})});
    data_.inputs.push_back({"labels", Meta({{1, 0}, {0, 5}})});
    data_.parameters.push_back({"table", DType::kFloat32, {11, 4}});
  }

  int Add(const char* target, std::vector<Argument> args, TensorMeta output,
          std::vector<NamedArgument> kwargs = {}) {
    Node node;
    node.name = absl::StrCat("node", data_.nodes.size());
    node.target = target;
    node.args = std::move(args);
    node.kwargs = std::move(kwargs);
    node.outputs = {std::move(output)};
    data_.nodes.push_back(std::move(node));
    return static_cast<int>(data_.nodes.size()) - 1;
  }

  int Embed(Argument indices, int64_t length = 6) {
    return Add("aten.embedding.default", {{ParameterId(0)}, std::move(indices)},
               Meta({{1, 0}, {0, length}, {0, 4}}, DType::kFloat32));
  }

  std::vector<IndexBounds> Find() {
    auto graph = Graph::Create(data_);
    EXPECT_TRUE(graph.ok()) << graph.status();
    return FindIndexBounds(*graph);
  }

  GraphData data_;
};

TEST_F(IndexBoundsTest, TheTableOfAnEmbeddingBoundsItsInput) {
  const int node = Embed(In(0));
  const auto bounds = Find();
  ASSERT_EQ(bounds.size(), 1u);
  EXPECT_EQ(bounds[0].input, InputId(0));
  EXPECT_EQ(bounds[0].node, NodeId(node));
  EXPECT_EQ(bounds[0].least, 0);
  EXPECT_EQ(bounds[0].most, 10);
  EXPECT_FALSE(bounds[0].ignored.has_value());
  EXPECT_EQ(bounds[0].box, std::vector<Extent>(2));
}

TEST_F(IndexBoundsTest, AreFollowedThroughViewsCutsAndShifts) {
  const int cut =
      Add("aten.slice.Tensor", {In(0), Int(1), Int(0), Int(-1)}, Meta({{1, 0}, {0, 5}}));
  const int again =
      Add("aten.slice.Tensor", {Value(cut), Int(-1), Int(2), Int(kEnd)}, Meta({{1, 0}, {0, 3}}));
  const int moved = Add("aten.add.Tensor", {Value(again), Int(2)}, Meta({{1, 0}, {0, 3}}));
  const int turned = Add("aten.permute.default", {Value(moved), {Argument::List{Int(1), Int(0)}}},
                         Meta({{0, 3}, {1, 0}}));
  Embed(Value(turned), 3);
  const auto bounds = Find();
  ASSERT_EQ(bounds.size(), 1u);
  EXPECT_EQ(bounds[0].least, -2);
  EXPECT_EQ(bounds[0].most, 8);
  EXPECT_EQ(bounds[0].box, (std::vector<Extent>{{}, {2, 5}}));
}

TEST_F(IndexBoundsTest, OneColumnIsOneColumn) {
  const int last = Add("aten.select.int", {In(0), Int(1), Int(-1)}, Meta({{1, 0}}));
  Embed(Value(last), 1);
  const auto bounds = Find();
  ASSERT_EQ(bounds.size(), 1u);
  EXPECT_EQ(bounds[0].box, (std::vector<Extent>{{}, {5, 6}}));
}

TEST_F(IndexBoundsTest, WhatMayBeChangedOnItsWayIsNotBounded) {
  const int clamped = Add("aten.clamp.default", {In(0), Int(0), Int(10)}, Meta({{1, 0}, {0, 6}}));
  Embed(Value(clamped));
  const int turned = Add("aten.permute.default", {In(0), {Argument::List{Int(1), Int(0)}}},
                         Meta({{0, 6}, {1, 0}}));
  const int cut =
      Add("aten.slice.Tensor", {Value(turned), Int(0), Int(0), Int(2)}, Meta({{0, 2}, {1, 0}}));
  Embed(Value(cut), 2);
  EXPECT_TRUE(Find().empty());
}

TEST_F(IndexBoundsTest, ClassesBoundTheTargetsOfALoss) {
  const int scores = Add("aten.ones.default", {{Argument::List{Int(8), Int(7), Int(5)}}},
                         Meta({{0, 8}, {0, 7}, {0, 5}}, DType::kFloat32));
  Add("aten.cross_entropy_loss.default", {Value(scores), In(1)}, Meta({}, DType::kFloat32));
  Add("aten.nll_loss_nd.default", {Value(scores), In(1), {None{}}, Int(1), Int(-1)},
      Meta({}, DType::kFloat32));
  const auto bounds = Find();
  ASSERT_EQ(bounds.size(), 2u);
  for (const IndexBounds& one : bounds) {
    EXPECT_EQ(one.input, InputId(1));
    EXPECT_EQ(one.least, 0);
    EXPECT_EQ(one.most, 6);
  }
  EXPECT_EQ(bounds[0].ignored, -100);
  EXPECT_EQ(bounds[1].ignored, -1);
}

}  // namespace
}  // namespace stagewright
