#include "common/graph/tensor.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(Tensor, SizesFollowTheSamples) {
  const TensorMeta meta{DType::kFloat16, {{1, 0}, {0, 3}, {0, 5}}};
  EXPECT_EQ(meta.Elements(4), 60);
  EXPECT_EQ(meta.SizeBytes(4), 120);
  EXPECT_EQ(meta.SizeBytes(0), 0);
  EXPECT_EQ((TensorMeta{DType::kFloat64, {}}).SizeBytes(7), 8);
  EXPECT_EQ((TensorMeta{DType::kBool, {{2, 1}}}).Elements(3), 7);
}

TEST(Tensor, WithoutALayoutItIsCutOnlyWhereEachSampleHasOneRowInFront) {
  EXPECT_TRUE((TensorMeta{DType::kFloat32, {{1, 0}, {0, 3}}}).IsBatched());
  EXPECT_FALSE((TensorMeta{DType::kFloat32, {{256, 0}, {0, 3}}}).IsBatched())
      << "rows of a sample may lie together or far apart";
  EXPECT_FALSE((TensorMeta{DType::kFloat32, {}}).IsBatched());
  EXPECT_FALSE((TensorMeta{DType::kFloat32, {{0, 3}}}).IsBatched());
  EXPECT_FALSE((TensorMeta{DType::kFloat32, {{1, 1}, {0, 3}}}).IsBatched());
  EXPECT_FALSE((TensorMeta{DType::kFloat32, {{0, 3}, {1, 0}}}).IsBatched());
  EXPECT_FALSE((TensorMeta{DType::kFloat32, {{1, 0}, {1, 0}}}).IsBatched());
  EXPECT_TRUE((TensorMeta{DType::kFloat32, {{0, 3}, {1, 0}}}).DependsOnBatch());
  EXPECT_FALSE((TensorMeta{DType::kFloat32, {{0, 3}}}).DependsOnBatch());
}

TEST(Tensor, ALayoutSaysWhereTheSamplesLie) {
  TensorMeta meta{DType::kFloat32, {{0, 3}, {8, 0}}, SampleLayout{1, 4}};
  EXPECT_EQ(meta.Samples(), (SampleLayout{1, 4}));
  EXPECT_TRUE(meta.IsBatched());
  meta = {DType::kFloat32, {{1, 0}, {0, 3}}};
  EXPECT_EQ(meta.Samples(), SampleLayout{});
  meta.mixed = true;
  EXPECT_EQ(meta.Samples(), std::nullopt);
  EXPECT_FALSE(meta.IsBatched());
}

TEST(Tensor, EveryTypeHasASizeAndAName) {
  for (int i = 0; i <= static_cast<int>(DType::kBool); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_GT(SizeOf(dtype), 0);
    EXPECT_FALSE(DTypeName(dtype).empty());
    EXPECT_EQ(IsFloating(dtype), DTypeName(dtype).find("float") != std::string_view::npos);
  }
  EXPECT_EQ(SizeOf(DType::kBFloat16), 2);
  EXPECT_EQ(SizeOf(DType::kInt64), 8);
}

}  // namespace
}  // namespace stagewright
