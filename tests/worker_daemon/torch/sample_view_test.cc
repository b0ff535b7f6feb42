#include "worker_daemon/torch/sample_view.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "worker_daemon/messages/tensor_pieces.h"

namespace stagewright {
namespace {

// 6 samples; entry tells its sample. Each layout as [.., outer, samples, inner, ..].
struct Case {
  SampleLayout layout;
  int64_t inner = 1;
  std::vector<int64_t> before, after;
};

class SampleLayouts : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kSamples = 6;
  static constexpr SampleRange kAll = {10, 10 + kSamples};

  at::Tensor Whole() const {
    std::vector<int64_t> shape = GetParam().before;
    for (int64_t size : {GetParam().layout.outer, kSamples, GetParam().inner})
      shape.push_back(size);
    shape.insert(shape.end(), GetParam().after.begin(), GetParam().after.end());
    const int64_t dim = GetParam().layout.dim;
    std::vector<int64_t> ones(shape.size(), 1);
    ones[dim + 1] = kSamples;
    const at::Tensor of_sample = at::arange(kSamples, at::kDouble).reshape(ones);
    const at::Tensor noise = at::rand(shape, at::kDouble) * 0.5;
    return (of_sample + noise).flatten(dim, dim + 2);
  }
  TensorMeta MetaOf(const at::Tensor& whole) const {
    TensorMeta meta{DType::kFloat64, {}};
    for (int64_t size : whole.sizes()) meta.shape.push_back({0, size});
    meta.shape[GetParam().layout.dim] = {GetParam().layout.outer * GetParam().inner, 0};
    meta.layout = GetParam().layout;
    return meta;
  }
};

TEST_P(SampleLayouts, ACutHasThatSamplesEntriesAlone) {
  const at::Tensor whole = Whole();
  for (int64_t s = 0; s < kSamples; ++s) {
    const auto cut = Cut(whole, MetaOf(whole), kAll, {10 + s, 11 + s});
    ASSERT_TRUE(cut.ok()) << cut.status();
    EXPECT_EQ(cut->numel(), whole.numel() / kSamples);
    EXPECT_TRUE(at::floor(*cut).eq(static_cast<double>(s)).all().item<bool>()) << s;
  }
}

TEST_P(SampleLayouts, CutAndJoinedItIsTheSame) {
  const at::Tensor whole = Whole();
  const TensorMeta meta = MetaOf(whole);
  std::vector<Part> parts;
  for (const SampleRange range : {SampleRange{13, 16}, SampleRange{10, 11}, SampleRange{11, 13}})
    parts.push_back({range, *Cut(whole, meta, kAll, range)});
  const auto joined = Join(parts, meta, kAll);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_TRUE(at::equal(*joined, whole));
  // Two readers: each adds to its samples.
  parts.push_back({kAll, whole});
  const auto sum = Sum(parts, meta, kAll);
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_TRUE(at::equal(*sum, whole * 2));
}

INSTANTIATE_TEST_SUITE_P(
    All, SampleLayouts,
    ::testing::Values(Case{.layout = {0, 1}, .after = {3}},                 // [batch, 3]
                      Case{.layout = {0, 1}, .inner = 4, .after = {2}},     // [batch * 4, 2]
                      Case{.layout = {0, 4}, .after = {2}},                 // [4 * batch, 2]
                      Case{.layout = {0, 2}, .inner = 3},                   // [2 * batch * 3]
                      Case{.layout = {1, 1}, .before = {5}, .after = {2}},  // [5, batch, 2]
                      Case{.layout = {1, 2}, .inner = 2, .before = {3}}));  // [3, 4 * batch]

TEST(MixedValues, PassWholeOrNotAtAll) {
  TensorMeta meta{DType::kFloat64, {{1, 0}, {0, 2}}};
  meta.mixed = true;
  const at::Tensor whole = at::rand({4, 2}, at::kDouble);
  const auto same = Cut(whole, meta, {0, 4}, {0, 4});
  ASSERT_TRUE(same.ok());
  EXPECT_TRUE(same->is_same(whole));
  EXPECT_EQ(Cut(whole, meta, {0, 4}, {0, 2}).status().message(),
            "a tensor whose entries belong to no sample alone cannot be cut");
  EXPECT_FALSE(
      Join({{{0, 2}, whole.narrow(0, 0, 2)}, {{2, 4}, whole.narrow(0, 2, 2)}}, meta, {0, 4}).ok());
  EXPECT_FALSE(Sum({{{0, 2}, whole.narrow(0, 0, 2)}}, meta, {0, 4}).ok());
}

}  // namespace
}  // namespace stagewright
