#include "worker_daemon/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Sampler Make(int64_t samples, int64_t mini_batch, SampleOrder order, uint64_t seed = 1) {
  auto sampler = Sampler::Create(samples, mini_batch, order, seed);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  return *std::move(sampler);
}

TEST(Sampler, SequentialOrderDropsTheRestAndStartsAgain) {
  Sampler sampler = Make(7, 3, SampleOrder::kSequential);
  EXPECT_EQ(sampler.steps_per_epoch(), 2);
  EXPECT_THAT(sampler.MiniBatch(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(sampler.MiniBatch(1), ElementsAre(3, 4, 5));
  EXPECT_THAT(sampler.MiniBatch(2), ElementsAre(0, 1, 2));
}

TEST(Sampler, AnEpochHasNoSampleTwiceAndEpochsDiffer) {
  for (const int64_t samples : {1, 5, 64, 1000}) {
    for (const int64_t mini_batch : {int64_t{1}, (samples + 2) / 3, samples}) {
      Sampler sampler = Make(samples, mini_batch, SampleOrder::kShuffled);
      std::vector<std::vector<int64_t>> epochs(2);
      for (int64_t step = 0; step < 2 * sampler.steps_per_epoch(); ++step) {
        for (int64_t index : sampler.MiniBatch(step)) {
          ASSERT_GE(index, 0);
          ASSERT_LT(index, samples);
          epochs[step / sampler.steps_per_epoch()].push_back(index);
        }
      }
      for (const auto& epoch : epochs) {
        EXPECT_EQ(std::set<int64_t>(epoch.begin(), epoch.end()).size(), epoch.size());
      }
      if (samples < 64) continue;
      EXPECT_NE(epochs[0], epochs[1]);
    }
  }
}

TEST(Sampler, IsAFunctionOfSeedAndStep) {
  Sampler one = Make(100, 10, SampleOrder::kShuffled, 7);
  Sampler two = Make(100, 10, SampleOrder::kShuffled, 7);
  // Out of order, as after a restart.
  for (int64_t step : {25, 3, 25, 0, 99}) EXPECT_EQ(two.MiniBatch(step), one.MiniBatch(step));
  EXPECT_NE(Make(100, 10, SampleOrder::kShuffled, 8).MiniBatch(0), one.MiniBatch(0));
}

TEST(Sampler, EveryPlaceIsEquallyLikely) {
  std::map<std::pair<int64_t, int64_t>, int> counts;  // (sample, place)
  const int epochs = 6000;
  Sampler sampler = Make(5, 5, SampleOrder::kShuffled);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const std::vector<int64_t> batch = sampler.MiniBatch(epoch);
    for (int64_t place = 0; place < 5; ++place) ++counts[{batch[place], place}];
  }
  for (const auto& [key, count] : counts) EXPECT_NEAR(count, epochs / 5, 5 * 31) << key.first;
  EXPECT_EQ(counts.size(), 25u);
}

TEST(Sampler, RefusesMiniBatchesThatNeverFill) {
  EXPECT_THAT(std::string(Sampler::Create(5, 6, SampleOrder::kSequential, 0).status().message()),
              HasSubstr("a mini-batch of 6 is larger than the data set of 5 samples"));
  EXPECT_FALSE(Sampler::Create(5, 0, SampleOrder::kSequential, 0).ok());
}

TEST(EvaluationBatches, CoverEverySampleOnce) {
  for (const int64_t samples : {1, 7, 8, 9, 16}) {
    std::vector<int64_t> counted;
    for (int64_t i = 0; i < EvaluationBatches(samples, 8); ++i) {
      const EvaluationBatch batch = EvaluationBatchAt(samples, 8, i);
      ASSERT_EQ(batch.indices.size(), 8u);
      counted.insert(counted.end(), batch.indices.begin(), batch.indices.begin() + batch.valid);
      for (int64_t index : batch.indices) EXPECT_LT(index, samples);
    }
    ASSERT_EQ(static_cast<int64_t>(counted.size()), samples);
    for (int64_t i = 0; i < samples; ++i) EXPECT_EQ(counted[i], i);
  }
}

}  // namespace
}  // namespace stagewright
