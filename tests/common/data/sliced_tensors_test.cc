#include "common/data/sliced_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

// 0, 1, 2, ... in a tensor of integers.
OwnedTensor Counting(std::vector<int64_t> shape) {
  OwnedTensor tensor{"w", DType::kInt32, std::move(shape), {}};
  int64_t count = 1;
  for (int64_t size : tensor.shape) count *= size;
  std::vector<int32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto bytes = std::as_bytes(std::span(numbers));
  tensor.bytes.assign(bytes.begin(), bytes.end());
  return tensor;
}

std::vector<int32_t> Numbers(const std::vector<std::byte>& bytes) {
  std::vector<int32_t> numbers(bytes.size() / sizeof(int32_t));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

TEST(SlicedTensorsTest, TakesAColumn) {
  const OwnedTensor whole = Counting({2, 3, 2});
  std::vector<std::byte> out(4 * sizeof(int32_t));
  ASSERT_TRUE(ReadSlice(whole.view(), 1, 2, 1, out).ok());
  EXPECT_EQ(Numbers(out), (std::vector<int32_t>{4, 5, 10, 11}));
}

TEST(SlicedTensorsTest, SlicesAlongAnyDimensionJoinToTheWhole) {
  const OwnedTensor whole = Counting({4, 6, 2});
  for (int32_t dim = 0; dim < 3; ++dim) {
    std::vector<OwnedTensor> slices;
    std::vector<TensorView> views;
    const int64_t size = whole.shape[dim] / 2;
    for (int64_t begin : {int64_t{0}, size}) {
      OwnedTensor& slice = slices.emplace_back(whole);
      slice.shape[dim] = size;
      slice.bytes.assign(whole.bytes.size() / 2, std::byte{0});
      Parameter parameter;
      parameter.shape = slice.shape;
      parameter.slice = {"w", {}, whole.shape, dim, begin};
      ASSERT_TRUE(ReadParameter(whole.view(), parameter, slice.bytes).ok());
    }
    for (const OwnedTensor& slice : slices) views.push_back(slice.view());
    const auto joined = JoinSlices("w", views, dim);
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_EQ(joined->shape, whole.shape);
    EXPECT_EQ(joined->bytes, whole.bytes) << dim;
  }
}

TEST(SlicedTensorsTest, WhatIsNoSliceIsReadWhole) {
  const OwnedTensor whole = Counting({2, 2});
  Parameter parameter;
  parameter.shape = whole.shape;
  std::vector<std::byte> out(whole.bytes.size());
  ASSERT_TRUE(ReadParameter(whole.view(), parameter, out).ok());
  EXPECT_EQ(out, whole.bytes);
}

TEST(SlicedTensorsTest, RefusesPartsOfDifferentTensors) {
  const OwnedTensor a = Counting({2, 2}), b = Counting({2, 3}), c = Counting({4});
  OwnedTensor d = a;
  d.dtype = DType::kFloat32;
  for (const OwnedTensor& other : {b, c, d}) {
    const auto joined = JoinSlices("w", {a.view(), other.view()}, 0);
    EXPECT_EQ(joined.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(joined.status().message(), HasSubstr("no part of \"w\""));
  }
  EXPECT_FALSE(JoinSlices("w", {a.view()}, 2).ok());
}

}  // namespace
}  // namespace stagewright
