#include "common/graph/aten.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(Aten, NamesWithoutNamespaceAndOverload) {
  EXPECT_EQ(AtenName("aten.linear.default"), "linear");
  EXPECT_EQ(AtenName("aten.add.Tensor"), "add");
  EXPECT_EQ(AtenName("getitem"), "getitem");
}

TEST(Aten, Kinds) {
  EXPECT_EQ(KindOfTarget("aten.transpose.int"), AtenKind::kView);
  EXPECT_EQ(KindOfTarget("aten.split_with_sizes.default"), AtenKind::kView);
  EXPECT_EQ(KindOfTarget("aten.linear.default"), AtenKind::kMatmul);
  EXPECT_EQ(KindOfTarget("aten.mm.default"), AtenKind::kMatmul);
  EXPECT_EQ(KindOfTarget("aten.conv2d.default"), AtenKind::kConvolution);
  EXPECT_EQ(KindOfTarget("aten.conv_transpose2d.input"), AtenKind::kConvolution);
  EXPECT_EQ(KindOfTarget("aten._scaled_dot_product_flash_attention.default"), AtenKind::kAttention);
  EXPECT_EQ(KindOfTarget("aten.embedding.default"), AtenKind::kEmbedding);
  EXPECT_EQ(KindOfTarget("aten.mul.Tensor"), AtenKind::kElementwise);
  EXPECT_EQ(KindOfTarget("aten.something_new.default"), AtenKind::kElementwise);
  EXPECT_EQ(KindOfTarget("aten.linalg_matmul.default"), AtenKind::kMatmul);
  EXPECT_EQ(KindOfTarget("aten.conv_depthwise3d.default"), AtenKind::kConvolution);
  EXPECT_EQ(KindOfTarget("aten.einsum.default"), AtenKind::kContraction);
  EXPECT_EQ(KindOfTarget("aten.lstm.input"), AtenKind::kRecurrent);
  EXPECT_EQ(KindOfTarget("aten.gru_cell.default"), AtenKind::kRecurrent);
  EXPECT_TRUE(IsMatmulLike(AtenKind::kContraction));
  EXPECT_TRUE(IsMatmulLike(AtenKind::kRecurrent));
  EXPECT_TRUE(IsMatmulLike(AtenKind::kAttention));
  EXPECT_FALSE(IsMatmulLike(AtenKind::kEmbedding));
}

}  // namespace
}  // namespace stagewright
