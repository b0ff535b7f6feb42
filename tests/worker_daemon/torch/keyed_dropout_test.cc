#include "worker_daemon/torch/keyed_dropout.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/base/sample_range.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "worker_daemon/torch/sample_view.h"
#include "worker_daemon/torch/tensor_types.h"

namespace stagewright::testing {
namespace {

Node DropoutNode(std::string target, Argument p, TensorMeta meta) {
  Node node;
  node.name = "drop";
  node.target = std::move(target);
  node.args = {In(0), std::move(p), Bool(true)};
  node.outputs = {std::move(meta)};
  return node;
}

at::Tensor Apply(const Node& node, const at::Tensor& input, int64_t samples, RandomKey key,
                 NodeId id = NodeId(3)) {
  const auto dropout = KeyedDropout::Create(node, id, true);
  EXPECT_TRUE(dropout.ok()) << dropout.status();
  std::vector<at::Tensor> outputs;
  EXPECT_TRUE(dropout->Run(input, samples, key, outputs).ok());
  return outputs[0];
}

TEST(KeyedDropout, KeepsTheRightShareAndScalesIt) {
  for (const double p : {0.1, 0.5, 0.9}) {
    const Node node = DropoutNode("aten.dropout.default", Real(p), Meta({-1, 1000}));
    const at::Tensor out =
        Apply(node, at::ones({64, 1000}, at::kDouble), 64, {.seed = 1, .step = 2});
    const double kept = out.ne(0).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(kept, 1 - p, 5 * std::sqrt(p * (1 - p) / 64000));
    EXPECT_DOUBLE_EQ(out.max().item<double>(), 1 / (1 - p));
    // Rows are not copies of one another.
    EXPECT_FALSE(at::equal(out[0], out[1]));
  }
}

// What accelerators run, on the processor: to the bit the numbers of KeyedUniforms.
TEST(KeyedDropout, DevicesDrawTheNumbersOfTheHost) {
  const std::vector<uint64_t> keys = {0, 1, 0x8000000000000000u, 0xffffffffffffffffu,
                                      0x9e3779b97f4a7c15u};
  constexpr int64_t kRow = 4099;
  std::vector<double> numbers(kRow);
  KeyedUniforms(keys[3], kRow, numbers.data());
  // Also at a number that was drawn, on both sides of it, and at both ends.
  for (const double p : {0.0, 0.1, 0.5, numbers[17], std::nextafter(numbers[17], 1.0),
                         std::nextafter(numbers[17], 0.0), 0.999999, 1.0}) {
    const at::Tensor kept = KeptOnDevice(keys, kRow, p, at::kCPU);
    ASSERT_EQ(kept.scalar_type(), at::kBool);
    for (size_t i = 0; i < keys.size(); ++i) {
      KeyedUniforms(keys[i], kRow, numbers.data());
      for (int64_t j = 0; j < kRow; ++j)
        ASSERT_EQ(kept[static_cast<int64_t>(i)].data_ptr<bool>()[j], numbers[j] >= p)
            << p << " " << i << " " << j;
    }
    KeyedUniforms(keys[3], kRow, numbers.data());
  }
}

TEST(KeyedDropout, DependsOnSeedStepSampleAndNodeOnly) {
  const Node node = DropoutNode("aten.dropout.default", Real(0.5), Meta({-1, 40}));
  const at::Tensor ones = at::ones({8, 40}, at::kDouble);
  const RandomKey key{.seed = 5, .step = 7};
  const at::Tensor whole = Apply(node, ones, 8, key);
  EXPECT_TRUE(at::equal(whole, Apply(node, ones, 8, key)));
  // Cut into micro-batches, the samples keep their masks.
  for (const SampleRange range : {SampleRange{0, 3}, SampleRange{3, 4}, SampleRange{4, 8}}) {
    RandomKey own = key;
    own.first_sample = range.begin;
    const at::Tensor part = Apply(node, ones.slice(0, range.begin, range.end), range.size(), own);
    EXPECT_TRUE(at::equal(part, whole.slice(0, range.begin, range.end)));
  }
  EXPECT_FALSE(at::equal(whole, Apply(node, ones, 8, {.seed = 6, .step = 7})));
  EXPECT_FALSE(at::equal(whole, Apply(node, ones, 8, {.seed = 5, .step = 8})));
  EXPECT_FALSE(at::equal(whole, Apply(node, ones, 8, key, NodeId(4))));
}

TEST(KeyedDropout, FindsTheSamplesInAnyDimension) {
  // [tokens, samples, width] and [samples * tokens, width] hold the same samples.
  const at::Tensor ones = at::ones({4, 6, 8}, at::kDouble);
  const Node node = DropoutNode("aten.dropout.default", Real(0.5), Meta({4, -1, 8}));
  const at::Tensor whole = Apply(node, ones, 6, {.seed = 1});
  const at::Tensor part = Apply(node, ones.slice(1, 2, 5), 3, {.seed = 1, .first_sample = 2});
  EXPECT_TRUE(at::equal(part, whole.slice(1, 2, 5)));
  const Node flat = DropoutNode("aten.dropout.default", Real(0.5), Meta({-4, 8}));
  const at::Tensor rows = Apply(flat, at::ones({24, 8}, at::kDouble), 6, {.seed = 1});
  const at::Tensor last =
      Apply(flat, at::ones({4, 8}, at::kDouble), 1, {.seed = 1, .first_sample = 5});
  EXPECT_TRUE(at::equal(last, rows.slice(0, 20, 24)));
}

// [time, samples, width], [time * samples, width] and [2 * samples * 3].
TEST(KeyedDropout, MasksFollowTheLayout) {
  struct Case {
    std::vector<int64_t> shape;
    SampleLayout layout;
  };
  for (const auto& [shape, layout] : {Case{{4, -1, 8}, {1, 1}}, Case{{-4, 8}, {0, 4}},
                                      Case{{-6, 5}, {0, 2}}, Case{{-6, 5}, {0, 1}}}) {
    TensorMeta meta = Meta(shape);
    meta.layout = layout;
    const Node node = DropoutNode("aten.dropout.default", Real(0.5), meta);
    const at::Tensor whole = Apply(node, at::ones(ShapeAt(meta, 6), at::kDouble), 6, {.seed = 1});
    EXPECT_GT(whole.eq(0).sum().item<int64_t>(), 0);
    for (const SampleRange range : {SampleRange{0, 2}, SampleRange{2, 3}, SampleRange{3, 6}}) {
      const at::Tensor part = Apply(node, at::ones(ShapeAt(meta, range.size()), at::kDouble),
                                    range.size(), {.seed = 1, .first_sample = range.begin});
      EXPECT_TRUE(at::equal(part, CutSamples(whole, layout, {0, 6}, range)));
    }
  }
}

TEST(KeyedDropout, AMixedValueHasTheMaskOfItsPass) {
  TensorMeta meta = Meta({-1, 40});
  meta.mixed = true;
  const Node node = DropoutNode("aten.dropout.default", Real(0.5), meta);
  const at::Tensor ones = at::ones({4, 40}, at::kDouble);
  const at::Tensor first = Apply(node, ones, 4, {.seed = 1, .first_sample = 4});
  EXPECT_TRUE(at::equal(first, Apply(node, ones, 4, {.seed = 1, .first_sample = 4})));
  EXPECT_FALSE(at::equal(first, Apply(node, ones, 4, {.seed = 1, .first_sample = 0})));
  // What does not depend on the batch is the same in all passes of a step.
  const Node fixed = DropoutNode("aten.dropout.default", Real(0.5), Meta({4, 40}));
  EXPECT_TRUE(at::equal(Apply(fixed, ones, 2, {.seed = 1, .first_sample = 4}),
                        Apply(fixed, ones, 2, {.seed = 1, .first_sample = 0})));
}

// Time, channels, samples: a channel is dropped for all samples, in every pass of the step.
TEST(KeyedDropout, FeatureDropoutOverSamplesInAChannelIsThatOfTheStep) {
  TensorMeta meta = Meta({4, 5, -1});
  meta.layout = SampleLayout{2, 1};
  const Node node = DropoutNode("aten.feature_dropout.default", Real(0.5), meta);
  const at::Tensor whole = Apply(node, at::ones({4, 5, 6}, at::kDouble), 6, {.seed = 1});
  const at::Tensor part =
      Apply(node, at::ones({4, 5, 2}, at::kDouble), 2, {.seed = 1, .first_sample = 3});
  EXPECT_TRUE(at::equal(part, whole.slice(2, 3, 5)));
  EXPECT_TRUE(at::equal(whole.slice(2, 0, 1).expand_as(whole), whole));
}

TEST(KeyedDropout, FeatureDropoutDropsWholeChannels) {
  const Node node = DropoutNode("aten.feature_dropout.default", Real(0.5), Meta({-1, 50, 3, 3}));
  const at::Tensor out = Apply(node, at::ones({4, 50, 3, 3}, at::kDouble), 4, {.seed = 1});
  const at::Tensor sums = out.sum({2, 3});
  EXPECT_TRUE(at::logical_or(sums.eq(0), sums.eq(18)).all().item<bool>());
  EXPECT_GT(sums.eq(0).sum().item<int64_t>(), 60);
}

TEST(KeyedDropout, AlphaDropoutKeepsMeanAndVariance) {
  const Node node = DropoutNode("aten.alpha_dropout.default", Real(0.3), Meta({-1, 20000}));
  const at::Tensor out = Apply(node, Random({8, 20000}, 3), 8, {.seed = 1});
  EXPECT_NEAR(out.mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(out.var().item<double>(), 1, 0.03);
}

TEST(KeyedDropout, DropsEverythingAndNothing) {
  const at::Tensor ones = at::ones({2, 8}, at::kDouble);
  const Node all = DropoutNode("aten.dropout.default", Int(1), Meta({-1, 8}));
  EXPECT_EQ(Apply(all, ones, 2, {}).abs().sum().item<double>(), 0);
  const Node none = DropoutNode("aten.dropout.default", Real(0), Meta({-1, 8}));
  EXPECT_TRUE(at::equal(Apply(none, ones, 2, {}), ones));
  const Node some = DropoutNode("aten.dropout.default", Real(0.5), Meta({-1, 8}));
  const auto evaluation = KeyedDropout::Create(some, NodeId(0), /*training=*/false);
  std::vector<at::Tensor> outputs;
  ASSERT_TRUE(evaluation->Run(ones, 2, {}, outputs).ok());
  EXPECT_TRUE(at::equal(outputs[0], ones));
}

TEST(KeyedDropout, RefusesWhatIsNoProbability) {
  const Node node = DropoutNode("aten.dropout.default", Real(1.5), Meta({-1, 8}));
  EXPECT_THAT(std::string(KeyedDropout::Create(node, NodeId(0), true).status().message()),
              ::testing::HasSubstr("node \"drop\" (aten.dropout.default): p = 1.5"));
}

}  // namespace
}  // namespace stagewright::testing
