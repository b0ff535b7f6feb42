#include "common/rewrite/carried.h"

#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::Batched;
using testing::GraphBuilder;
using testing::Number;

constexpr InParts kFour{3, 4};

// A node over values of 2 x 3 x 8 a sample (and the batch in front), of which those that `split`
// names come in four along their last dimension.
class CarriedTest : public ::testing::Test {
 protected:
  Argument Made(std::vector<int64_t> shape = {2, 3, 8}) {
    return build_.Add("aten.relu.default", {build_.Feature(Name(), shape)}, shape);
  }
  static Argument List(std::vector<Argument> items) { return {std::move(items)}; }

  std::optional<InParts> Carried(const std::string& target, std::vector<Argument> args,
                                 std::vector<int64_t> shape, std::vector<Argument> split,
                                 InParts parts = kFour) {
    const Argument out = build_.Add(target, std::move(args), shape);
    GraphBuilder build = build_;
    build.Loss(out, shape);
    const Graph graph = build.Build();
    return CarriedParts(graph, testing::NodeOf(out), [&](ValueRef value) {
      for (const Argument& one : split) {
        if (std::get<ValueRef>(one.value) == value) return std::optional(parts);
      }
      return std::optional<InParts>();
    });
  }

  std::string Name() { return "x" + std::to_string(build_.data.inputs.size()); }
  GraphBuilder build_{"carried"};
};

TEST_F(CarriedTest, ElementwiseOperatorsKeepThePartsOfEqualOperands) {
  const Argument a = Made(), b = Made(), row = Made({2, 3, 1});
  EXPECT_EQ(Carried("aten.gelu.default", {a}, {2, 3, 8}, {a}), kFour);
  EXPECT_EQ(Carried("aten.add.Tensor", {a, b}, {2, 3, 8}, {a, b}), kFour);
  EXPECT_EQ(Carried("aten.mul.Tensor", {a, row}, {2, 3, 8}, {a}), kFour);
  EXPECT_EQ(Carried("aten.add.Tensor", {a, b}, {2, 3, 8}, {a}), std::nullopt);
  EXPECT_EQ(Carried("aten.add.Tensor", {a, b}, {2, 3, 8}, {}), std::nullopt);
  EXPECT_EQ(Carried("aten.add.Tensor", {a, build_.Weight("bias", {8})}, {2, 3, 8}, {a}),
            std::nullopt);
  EXPECT_EQ(Carried("aten.layer_norm.default", {a}, {2, 3, 8}, {a}), std::nullopt);
  EXPECT_EQ(Carried("aten.dropout.default", {a}, {2, 3, 8}, {a}), std::nullopt);
}

TEST_F(CarriedTest, SoftmaxKeepsThemAlongOtherDimensions) {
  const Argument a = Made();
  EXPECT_EQ(Carried("aten.softmax.int", {a, Number(2)}, {2, 3, 8}, {a}), kFour);
  EXPECT_EQ(Carried("aten.softmax.int", {a, Number(3)}, {2, 3, 8}, {a}), std::nullopt);
  EXPECT_EQ(Carried("aten.softmax.int", {a, Number(-1)}, {2, 3, 8}, {a}), std::nullopt);
}

TEST_F(CarriedTest, ViewsKeepThemWhereBlocksStayApart) {
  const Argument a = Made();
  const auto view = [&](std::vector<int64_t> shape) {
    return Carried("aten.view.default", {a, List({})}, shape, {a});
  };
  EXPECT_EQ(view({2, 3, 4, 2}), kFour);         // Heads.
  EXPECT_EQ(view({6, 8}), (InParts{2, 4}));     // What is before is merged.
  EXPECT_EQ(view({2, 3, 2, 4}), std::nullopt);  // Two heads for four parts.
  EXPECT_EQ(view({2, 24}), std::nullopt);       // Parts lie in turns.
  EXPECT_EQ(Carried("aten.transpose.int", {a, Number(1), Number(-1)}, {8, 3, 2}, {a}),
            (InParts{1, 4}));
  EXPECT_EQ(Carried("aten.permute.default", {a, List({Number(0), Number(3), Number(1), Number(2)})},
                    {8, 2, 3}, {a}),
            (InParts{1, 4}));
}

TEST_F(CarriedTest, OtherDimensionsComeAndGoAroundThem) {
  const Argument a = Made(), b = Made({1, 3, 8});
  EXPECT_EQ(Carried("aten.unsqueeze.default", {a, Number(1)}, {1, 2, 3, 8}, {a}), (InParts{4, 4}));
  EXPECT_EQ(Carried("aten.unsqueeze.default", {a, Number(-1)}, {2, 3, 8, 1}, {a}), kFour);
  EXPECT_EQ(Carried("aten.squeeze.dim", {b, Number(1)}, {3, 8}, {b}), (InParts{2, 4}));
  EXPECT_EQ(Carried("aten.squeeze.dim", {b, Number(-1)}, {1, 3, 8}, {b}), std::nullopt);
  EXPECT_EQ(Carried("aten.squeeze.dim", {a, Number(1)}, {2, 3, 8}, {a}), kFour);  // Is not 1.
  EXPECT_EQ(Carried("aten.select.int", {a, Number(1), Number(0)}, {3, 8}, {a}), (InParts{2, 4}));
  EXPECT_EQ(Carried("aten.select.int", {a, Number(3), Number(0)}, {2, 3}, {a}), std::nullopt);
  EXPECT_EQ(Carried("aten.slice.Tensor", {a, Number(2), Number(0), Number(2)}, {2, 2, 8}, {a}),
            kFour);
  EXPECT_EQ(Carried("aten.slice.Tensor", {a, Number(-1), Number(0), Number(2)}, {2, 3, 2}, {a}),
            std::nullopt);
}

TEST_F(CarriedTest, AttentionKeepsWholeHeads) {
  const InParts heads{1, 4};
  const std::vector<int64_t> shape = {4, 5, 2};
  const Argument q = Made(shape), k = Made(shape), v = Made(shape);
  const Argument mask = Made({1, 5, 5}), own = Made({4, 5, 5});
  const char* sdpa = "aten.scaled_dot_product_attention.default";
  EXPECT_EQ(Carried(sdpa, {q, k, v}, shape, {q, k, v}, heads), heads);
  EXPECT_EQ(Carried(sdpa, {q, k, v, mask}, shape, {q, k, v}, heads), heads);
  EXPECT_EQ(Carried(sdpa, {q, k, v, own}, shape, {q, k, v}, heads), std::nullopt);
  EXPECT_EQ(Carried(sdpa, {q, k, v}, shape, {q, k}, heads), std::nullopt);
  EXPECT_EQ(Carried(sdpa, {q, k, v, {None{}}, {0.1}}, shape, {q, k, v}, heads), std::nullopt);
  EXPECT_EQ(Carried(sdpa, {q, k, v, {None{}}, {0.0}}, shape, {q, k, v}, heads), heads);
  EXPECT_EQ(Carried(sdpa, {q, k, v}, shape, {q, k, v}, {3, 2}), std::nullopt);
  EXPECT_EQ(Carried("aten.matmul.default", {q, own}, shape, {q, own}, heads), heads);
}

TEST_F(CarriedTest, SizesOfAPart) {
  const Argument a = Made();
  const Argument view =
      build_.Add("aten.view.default",
                 {a, List({Argument{SymInt{1, 0}}, Number(2), Number(3), Number(8)})}, {2, 3, 8});
  build_.Loss(view, {2, 3, 8});
  const Node part = WithSizesOfPart(build_.Build(), testing::NodeOf(view), kFour);
  EXPECT_EQ(part.outputs.front(), Batched({2, 3, 2}));
  EXPECT_EQ(part.args[1], List({Argument{SymInt{1, 0}}, Number(2), Number(3), Number(2)}));
}

}  // namespace
}  // namespace stagewright
