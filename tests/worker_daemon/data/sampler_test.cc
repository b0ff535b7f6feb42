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

TEST(Sampler, SequentialOrderGoesOnWhereAnEpochEnds) {
  Sampler sampler = Make(7, 3, SampleOrder::kSequential);
  EXPECT_THAT(sampler.MiniBatch(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(sampler.MiniBatch(1), ElementsAre(3, 4, 5));
  EXPECT_THAT(sampler.MiniBatch(2), ElementsAre(6, 0, 1));
  EXPECT_THAT(sampler.MiniBatch(3), ElementsAre(2, 3, 4));
}

// Every epoch has every sample once, also if a run is taken up again by a sampler that knows
// nothing of what was before.
TEST(Sampler, EveryEpochHasEverySampleOnceWhereverARunIsTakenUpAgain) {
  for (const int64_t samples : {1, 5, 64, 1000}) {
    for (const int64_t mini_batch : {int64_t{1}, (samples + 2) / 3, samples}) {
      const int64_t steps = 3 * samples / mini_batch;
      for (int64_t restart = 0; restart <= steps; restart += 1 + steps / 7) {
        Sampler sampler = Make(samples, mini_batch, SampleOrder::kShuffled);
        std::vector<int64_t> order;
        for (int64_t step = 0; step < steps; ++step) {
          if (step == restart) sampler = Make(samples, mini_batch, SampleOrder::kShuffled);
          const std::vector<int64_t> batch = sampler.MiniBatch(step);
          ASSERT_EQ(static_cast<int64_t>(batch.size()), mini_batch);
          order.insert(order.end(), batch.begin(), batch.end());
        }
        const auto epoch = [&](int64_t e) {
          return std::vector<int64_t>(order.begin() + e * samples,
                                      order.begin() + (e + 1) * samples);
        };
        const auto epochs = static_cast<int64_t>(order.size()) / samples;
        ASSERT_GE(epochs, 2);
        for (int64_t e = 0; e < epochs; ++e) {
          const std::vector<int64_t> seen = epoch(e);
          const std::set<int64_t> all(seen.begin(), seen.end());
          ASSERT_EQ(static_cast<int64_t>(all.size()), samples);
          ASSERT_EQ(*all.begin(), 0);
          ASSERT_EQ(*all.rbegin(), samples - 1);
        }
        if (samples >= 64) {
          EXPECT_NE(epoch(0), epoch(1));
        }
      }
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

// Samples 0..5 and 9..11 of one length, 6..8 of another, 12..15 of a third.
SampleLengths Three() { return SampleLengths({{0, 6, 0}, {6, 9, 1}, {9, 12, 0}, {12, 16, 2}}, 4); }

TEST(SamplerOfLengths, AMiniBatchIsFullInTheOrderOfTheData) {
  auto sampler = Sampler::Create(Three(), 2, SampleOrder::kSequential, 0);
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  std::vector<std::vector<int64_t>> steps;
  for (int64_t step = 0; step < 15; ++step) steps.push_back(sampler->MiniBatch(step));
  EXPECT_THAT(steps, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5),
                                 ElementsAre(6, 7), ElementsAre(9, 10), ElementsAre(12, 13),
                                 ElementsAre(14, 15),  // 8 and 11 are left over.
                                 ElementsAre(11, 0), ElementsAre(1, 2), ElementsAre(3, 4),
                                 ElementsAre(8, 6), ElementsAre(7, 8), ElementsAre(5, 9),
                                 ElementsAre(10, 11), ElementsAre(12, 13)));
  EXPECT_EQ(Sampler::Steps(Three(), 2, 1), 7);
  EXPECT_EQ(Sampler::Steps(Three(), 2, 2), 16);
  EXPECT_EQ(Sampler::Steps(Three(), 2, int64_t{1} << 59), std::nullopt);
  EXPECT_EQ(sampler->LengthAt(3), 1);
  EXPECT_EQ(sampler->LengthAt(6), 2);
}

TEST(SamplerOfLengths, EveryEpochHasEverySampleOnceInMiniBatchesOfOneLength) {
  const SampleLengths lengths = Three();
  for (const int64_t mini_batch : {1, 2, 3}) {
    auto sampler = Sampler::Create(lengths, mini_batch, SampleOrder::kShuffled, 5);
    ASSERT_TRUE(sampler.ok()) << sampler.status();
    const int64_t steps = *Sampler::Steps(lengths, mini_batch, 6);
    std::vector<std::vector<int64_t>> order(4);  // By length.
    for (int64_t step = 0; step < steps; ++step) {
      auto fresh = Sampler::Create(lengths, mini_batch, SampleOrder::kShuffled, 5);
      const std::vector<int64_t> batch = sampler->MiniBatch(step);
      // Wherever a run is taken up again.
      EXPECT_EQ(fresh->MiniBatch(step), batch);
      for (int64_t index : batch) {
        EXPECT_EQ(lengths.LengthOf(index), sampler->LengthAt(step));
        order[lengths.LengthOf(index)].push_back(index);
      }
    }
    for (int32_t l = 0; l < 3; ++l) {
      const int64_t samples = lengths.SamplesOf(l);
      EXPECT_EQ(static_cast<int64_t>(order[l].size()), 6 * samples / mini_batch * mini_batch);
      for (size_t begin = 0; begin + samples <= order[l].size(); begin += samples) {
        const std::set<int64_t> seen(order[l].begin() + begin, order[l].begin() + begin + samples);
        EXPECT_EQ(static_cast<int64_t>(seen.size()), samples);
      }
    }
  }
}

TEST(SamplerOfLengths, RefusesALengthWithoutEnoughSamples) {
  const auto sampler = Sampler::Create(Three(), 4, SampleOrder::kSequential, 0);
  EXPECT_THAT(std::string(sampler.status().message()),
              HasSubstr("a mini-batch of 4 is larger than the 3 samples of the same length as "
                        "sample 6"));
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
