#include "common/cost/operations/flops.h"

#include <gtest/gtest.h>

#include "common/cost/cost_model.h"
#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::Batched;
using testing::Fixed;
using testing::GraphBuilder;
using testing::NodeOf;
using testing::Number;

class FlopsTest : public ::testing::Test {
 protected:
  double Flops(const Argument& node, int64_t samples) {
    return ForwardFlops(builder_.Build(), NodeOf(node), samples);
  }
  Argument Ints(std::vector<int64_t> values) {
    Argument::List list;
    for (int64_t v : values) list.push_back(Number(v));
    return {std::move(list)};
  }

  GraphBuilder builder_{"flops"};
};

TEST_F(FlopsTest, LinearOverASequence) {
  const Argument x = builder_.Feature("x", {256, 1024});
  const Argument w = builder_.Weight("w", {4096, 1024});
  const Argument y = builder_.Add("aten.linear.default", {x, w}, {256, 4096});
  EXPECT_EQ(Flops(y, 1), 2.0 * 256 * 1024 * 4096);
  EXPECT_EQ(Flops(y, 3), 3 * 2.0 * 256 * 1024 * 4096);
  EXPECT_EQ(Flops(y, 0), 0);
}

TEST_F(FlopsTest, ProductsTakeTheInnerDimensionOfTheLeftOperand) {
  const Argument x = builder_.Feature("x", {6});
  const Argument w = builder_.Weight("w", {6, 5});
  const Argument b = builder_.Weight("b", {5});
  EXPECT_EQ(Flops(builder_.Add("aten.mm.default", {x, w}, {5}), 4), 2 * 4 * 6 * 5);
  EXPECT_EQ(Flops(builder_.Add("aten.matmul.default", {x, w}, {5}), 4), 2 * 4 * 6 * 5);
  EXPECT_EQ(Flops(builder_.Add("aten.addmm.default", {b, x, w}, {5}), 4), 2 * 4 * 6 * 5);
  const Argument l = builder_.Feature("l", {2, 7});
  const Argument r = builder_.Feature("r", {7, 3});
  const Argument s = builder_.Feature("s", {2, 3});
  EXPECT_EQ(Flops(builder_.Add("aten.bmm.default", {l, r}, {2, 3}), 4), 2 * 4 * 2 * 3 * 7);
  EXPECT_EQ(Flops(builder_.Add("aten.baddbmm.default", {s, l, r}, {2, 3}), 4), 2 * 4 * 2 * 3 * 7);
}

TEST_F(FlopsTest, ConvolutionsCountTheFilterPerOutput) {
  const Argument x = builder_.Feature("x", {3, 8, 8});
  const Argument w = builder_.Weight("w", {16, 3, 3, 3});
  const Argument y = builder_.Add("aten.conv2d.default", {x, w}, {16, 6, 6});
  EXPECT_EQ(Flops(y, 2), 2.0 * 2 * 16 * 6 * 6 * 27);
  const Argument deep = builder_.Weight("deep", {16, 1, 3, 3});
  const Argument z = builder_.Add("aten.conv2d.default", {y, deep}, {16, 4, 4});
  EXPECT_EQ(Flops(z, 1), 2.0 * 16 * 4 * 4 * 9) << "depthwise: one channel per group";
  const Argument line = builder_.Feature("line", {4, 10});
  const Argument kernel = builder_.Weight("kernel", {6, 4, 5});
  const Argument c = builder_.Add("aten.conv1d.default", {line, kernel}, {6, 6});
  EXPECT_EQ(Flops(c, 1), 2.0 * 6 * 6 * 4 * 5);
}

TEST_F(FlopsTest, TransposedConvolutionCountsTheFilterPerInput) {
  const Argument x = builder_.Feature("x", {4, 5, 5});
  const Argument w = builder_.Weight("w", {4, 2, 3, 3});
  const double expected = 2.0 * 4 * 5 * 5 * (2 * 9);
  const Argument y = builder_.Add("aten.conv_transpose2d.input", {x, w}, {2, 7, 7});
  EXPECT_EQ(Flops(y, 1), expected);
  const Argument z = builder_.Add(
      "aten.convolution.default",
      {x, w, {None{}}, Ints({1, 1}), Ints({0, 0}), Ints({1, 1}), {true}, Ints({0, 0}), Number(1)},
      {2, 7, 7});
  EXPECT_EQ(Flops(z, 1), expected);
}

TEST_F(FlopsTest, AttentionIsTwoProducts) {
  const Argument q = builder_.Feature("q", {16, 256, 64});
  const Argument k = builder_.Feature("k", {16, 128, 64});
  const Argument v = builder_.Feature("v", {16, 128, 32});
  const Argument same =
      builder_.Add("aten.scaled_dot_product_attention.default", {q, k, k}, {16, 256, 64});
  EXPECT_EQ(Flops(same, 2), 4.0 * 2 * 16 * 256 * 128 * 64);
  const Argument narrow =
      builder_.Add("aten._scaled_dot_product_flash_attention.default", {q, k, v}, {16, 256, 32});
  EXPECT_EQ(Flops(narrow, 1), 2.0 * 16 * 256 * 128 * (64 + 32));
}

TEST_F(FlopsTest, TheRestCountsOutputsOrNothing) {
  const Argument x = builder_.Feature("x", {6, 4});
  EXPECT_EQ(Flops(builder_.Add("aten.relu.default", {x}, {6, 4}), 5), 5 * 24);
  EXPECT_EQ(Flops(builder_.Add("aten.view.default", {x, Ints({-1, 24})}, {24}), 5), 0);
  EXPECT_EQ(Flops(builder_.AddWith("aten.native_layer_norm.default", {x},
                                   {Batched({6, 4}), Batched({6, 1}), Batched({6, 1})}),
                  1),
            24 + 6 + 6);
  const Argument ids = builder_.Feature("ids", {6}, DType::kInt64);
  const Argument table = builder_.Weight("table", {100, 4});
  EXPECT_EQ(Flops(builder_.Add("aten.embedding.default", {table, ids}, {6, 4}), 5), 0);
}

TEST_F(FlopsTest, OddArgumentsDoNotCrash) {
  const Argument x = builder_.Feature("x", {6});
  EXPECT_EQ(Flops(builder_.Add("aten.mm.default", {}, {5}), 2), 10);
  EXPECT_EQ(Flops(builder_.Add("aten.addmm.default", {x}, {5}), 2), 10);
  EXPECT_EQ(Flops(builder_.Add("aten.conv2d.default", {x}, {5}), 2), 10);
  EXPECT_EQ(
      Flops(builder_.Add("aten.scaled_dot_product_attention.default", {x, x, {None{}}}, {5}), 2),
      10);
  const Argument scalar = builder_.AddWith("aten.ones.default", {}, {Fixed({})});
  EXPECT_EQ(Flops(builder_.Add("aten.matmul.default", {scalar, x}, {6}), 1), 6);
}

}  // namespace
}  // namespace stagewright
