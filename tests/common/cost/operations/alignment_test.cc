#include "common/cost/operations/alignment.h"

#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::Batched;
using testing::GraphBuilder;
using testing::NodeOf;
using testing::Number;

// linear(x [16, in]) -> [16, out] in numbers of two bytes.
bool LinearIsUnaligned(int64_t in, int64_t out) {
  GraphBuilder builder("linear");
  const Argument x = builder.Feature("x", {16, in});
  const Argument y =
      builder.Add("aten.linear.default", {x, builder.Weight("w", {out, in})}, {16, out});
  return HasUnalignedRows(builder.Build(), NodeOf(y), 2);
}

TEST(Alignment, RowsOfEveryMatrixCount) {
  EXPECT_FALSE(LinearIsUnaligned(1024, 50304));
  EXPECT_TRUE(LinearIsUnaligned(1024, 50257)) << "the result";
  EXPECT_TRUE(LinearIsUnaligned(1023, 1024)) << "operand and weight";
  EXPECT_TRUE(LinearIsUnaligned(1028, 1024)) << "8 bytes";
  EXPECT_FALSE(LinearIsUnaligned(1032, 1024)) << "16 bytes";
}

TEST(Alignment, DependsOnTheSizeOfANumber) {
  GraphBuilder builder("sizes");
  const Argument x = builder.Feature("x", {16, 12});
  const Argument y =
      builder.Add("aten.linear.default", {x, builder.Weight("w", {20, 12})}, {16, 20});
  const Graph graph = builder.Build();
  EXPECT_TRUE(HasUnalignedRows(graph, NodeOf(y), 2));
  EXPECT_FALSE(HasUnalignedRows(graph, NodeOf(y), 4));
}

// scores = q k': the rows of k are those before it was transposed.
TEST(Alignment, LooksBehindTranspositions) {
  const auto scores = [](int64_t keys, int64_t width) {
    GraphBuilder builder("scores");
    const Argument q = builder.Feature("q", {64, width});
    const Argument k = builder.Feature("k", {keys, width});
    const Argument t =
        builder.Add("aten.transpose.int", {k, Number(-2), Number(-1)}, {width, keys});
    const Argument s = builder.AddWith("aten.matmul.default", {q, t}, {Batched({64, 64})});
    return HasUnalignedRows(builder.Build(), NodeOf(s), 2);
  };
  EXPECT_FALSE(scores(50, 32)) << "50 is no length of a row";
  EXPECT_TRUE(scores(64, 30));
}

TEST(Alignment, OnlyMatrixProductsCount) {
  GraphBuilder builder("others");
  const Argument x = builder.Feature("x", {16, 7});
  const Argument gelu = builder.Add("aten.gelu.default", {x}, {16, 7});
  const Argument attention =
      builder.Add("aten.scaled_dot_product_attention.default", {x, x, x}, {16, 7});
  const Graph graph = builder.Build();
  EXPECT_FALSE(HasUnalignedRows(graph, NodeOf(gelu), 2));
  EXPECT_FALSE(HasUnalignedRows(graph, NodeOf(attention), 2));
}

// A row as long as there are samples is as good as its number, which is not known here; and a bias
// is no matrix.
TEST(Alignment, SamplesAndVectorsCountAsAligned) {
  GraphBuilder builder("samples");
  const TensorMeta columns{DType::kFloat32, {{0, 8}, {1, 0}}};
  const Argument x = builder.Feature("x", {8});
  const Argument left = builder.AddWith("aten.exp.default", {x}, {columns});
  const Argument y = builder.AddWith("aten.mm.default", {left, x}, {testing::Fixed({8, 8})});
  const Argument z = builder.Add("aten.linear.default",
                                 {x, builder.Weight("w", {8, 8}), builder.Weight("b", {7})}, {8});
  const Graph graph = builder.Build();
  EXPECT_FALSE(HasUnalignedRows(graph, NodeOf(y), 2));
  EXPECT_FALSE(HasUnalignedRows(graph, NodeOf(z), 2));
}

}  // namespace
}  // namespace stagewright
