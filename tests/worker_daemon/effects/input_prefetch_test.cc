#include "worker_daemon/effects/input_prefetch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace stagewright::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Samples = std::vector<int64_t>;
using Gathered = std::pair<int, Samples>;  // The input first.

// What is gathered is the samples themselves. Remembers what was, and can stop it for a while.
class Gatherer {
 public:
  InputPrefetch::Gather Function() {
    return [this](InputId input, std::span<const int64_t> samples) -> absl::StatusOr<at::Tensor> {
      absl::MutexLock lock(&mutex_);
      threads_.push_back(std::this_thread::get_id());
      begun_.push_back({input.value(), Samples(samples.begin(), samples.end())});
      mutex_.Await(absl::Condition(&open_));
      ++ended_;
      if (samples[0] < 0) return absl::DataLossError("gone");
      return at::tensor(samples, at::kLong);
    };
  }

  void Open(bool open) {
    absl::MutexLock lock(&mutex_);
    open_ = open;
  }

  // What has been begun, when it is `count` gathers and nothing follows.
  std::vector<Gathered> Begun(size_t count) { return When(count, begun_); }
  void AwaitBegun(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto begun = [&] { return begun_.size() >= count; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&begun), absl::Seconds(20)));
  }

  size_t ended() {
    absl::MutexLock lock(&mutex_);
    return ended_;
  }
  std::vector<std::thread::id> threads() {
    absl::MutexLock lock(&mutex_);
    return threads_;
  }

 private:
  std::vector<Gathered> When(size_t count, const std::vector<Gathered>& begun) {
    AwaitBegun(count);
    absl::SleepFor(absl::Milliseconds(20));
    absl::MutexLock lock(&mutex_);
    return begun;
  }

  absl::Mutex mutex_;
  std::vector<Gathered> begun_;
  std::vector<std::thread::id> threads_;
  size_t ended_ = 0;
  bool open_ = true;
};

// Loads of an input, `size` samples each, through a batch.
std::vector<InputLoad> Loads(int input, const Samples& batch, int64_t size = 1) {
  const auto shared = std::make_shared<const Samples>(batch);
  std::vector<InputLoad> loads;
  for (int64_t begin = 0; begin < static_cast<int64_t>(batch.size()); begin += size)
    loads.push_back({InputId(input), shared, {begin, begin + size}});
  return loads;
}

std::vector<InputLoad> operator+(std::vector<InputLoad> a, const std::vector<InputLoad>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class InputPrefetchTest : public ::testing::Test {
 protected:
  // Nothing: it was not gathered ahead.
  std::optional<Samples> Take(int input, const Samples& samples) {
    const at::Tensor gathered = prefetch_->Take(InputId(input), samples);
    if (!gathered.defined()) return std::nullopt;
    const auto* const data = gathered.data_ptr<int64_t>();
    return Samples(data, data + gathered.numel());
  }

  Gatherer gatherer_;
  std::unique_ptr<InputPrefetch> prefetch_ = std::make_unique<InputPrefetch>(gatherer_.Function());
};

TEST_F(InputPrefetchTest, GathersTwoLoadsOfEachInputAheadInTheirOrder) {
  prefetch_->Expect(Loads(0, {5, 3, 8, 1}, 2) + Loads(1, {7}) + Loads(0, {9, 2}) +
                    Loads(1, {4, 6}));
  EXPECT_THAT(gatherer_.Begun(4), ElementsAre(Gathered{0, {5, 3}}, Gathered{0, {8, 1}},
                                              Gathered{1, {7}}, Gathered{1, {4}}));
  EXPECT_EQ(Take(0, {5, 3}), (Samples{5, 3}));
  EXPECT_EQ(gatherer_.Begun(5).back(), (Gathered{0, {9}}));
  EXPECT_EQ(Take(1, {7}), Samples{7});
  EXPECT_EQ(Take(0, {8, 1}), (Samples{8, 1}));
  EXPECT_EQ(Take(1, {4}), Samples{4});
  EXPECT_EQ(gatherer_.Begun(7).size(), 7u);
  EXPECT_EQ(Take(0, {9}), Samples{9});
  EXPECT_EQ(Take(0, {2}), Samples{2});
  EXPECT_EQ(Take(1, {6}), Samples{6});
  EXPECT_EQ(gatherer_.Begun(7).size(), 7u);
  for (const std::thread::id& thread : gatherer_.threads())
    EXPECT_NE(thread, std::this_thread::get_id());
}

TEST_F(InputPrefetchTest, GivesNothingForLoadsThatAreNotExpected) {
  EXPECT_EQ(Take(0, {1}), std::nullopt);
  prefetch_->Expect(Loads(0, {1, 2}, 2));
  gatherer_.AwaitBegun(1);
  EXPECT_EQ(Take(1, {1, 2}), std::nullopt);
  EXPECT_EQ(Take(0, {1}), std::nullopt);
  EXPECT_EQ(Take(0, {2, 1}), std::nullopt);
  EXPECT_EQ(Take(0, {1, 2}), (Samples{1, 2}));
  EXPECT_EQ(Take(0, {1, 2}), std::nullopt);  // Once.
}

TEST_F(InputPrefetchTest, WaitsForWhatIsUnderWayOnly) {
  gatherer_.Open(false);
  prefetch_->Expect(Loads(0, {1, 2, 3}));
  gatherer_.AwaitBegun(1);
  EXPECT_EQ(Take(0, {2}), std::nullopt);  // Drops 1, too.
  EXPECT_EQ(Take(0, {1}), std::nullopt);
  gatherer_.Open(true);
  EXPECT_THAT(gatherer_.Begun(2), ElementsAre(Gathered{0, {1}}, Gathered{0, {3}}));
  EXPECT_EQ(Take(0, {3}), Samples{3});

  gatherer_.Open(false);
  prefetch_->Expect(Loads(0, {4}));
  gatherer_.AwaitBegun(3);
  std::thread opens([&] {
    absl::SleepFor(absl::Milliseconds(20));
    gatherer_.Open(true);
  });
  EXPECT_EQ(Take(0, {4}), Samples{4});
  opens.join();
}

TEST_F(InputPrefetchTest, LoadsThatArePassedOverMakeRoom) {
  prefetch_->Expect(Loads(0, {1, 2, 3, 4}) + Loads(1, {9}));
  EXPECT_EQ(gatherer_.Begun(3).size(), 3u);
  EXPECT_EQ(Take(0, {2}), Samples{2});
  EXPECT_THAT(gatherer_.Begun(5), ElementsAre(Gathered{0, {1}}, Gathered{0, {2}}, Gathered{1, {9}},
                                              Gathered{0, {3}}, Gathered{0, {4}}));
  EXPECT_EQ(Take(0, {1}), std::nullopt);
  EXPECT_EQ(Take(1, {9}), Samples{9});
}

// What nobody asks for goes; what is asked for all the same is not gathered again.
TEST_F(InputPrefetchTest, KeepsWhatIsStillExpectedWhenThePlanChanges) {
  prefetch_->Expect(Loads(0, {1, 2}) + Loads(1, {5, 6}));
  EXPECT_EQ(gatherer_.Begun(4).size(), 4u);
  prefetch_->Expect(Loads(0, {2, 3, 4}));
  EXPECT_EQ(gatherer_.Begun(5).back(), (Gathered{0, {3}}));
  EXPECT_EQ(gatherer_.Begun(5).size(), 5u);
  EXPECT_EQ(Take(0, {1}), std::nullopt);
  EXPECT_EQ(Take(1, {5}), std::nullopt);
  EXPECT_EQ(Take(0, {2}), Samples{2});
  EXPECT_EQ(Take(0, {3}), Samples{3});
  prefetch_->Expect({});
  EXPECT_EQ(Take(0, {4}), std::nullopt);
}

TEST_F(InputPrefetchTest, TheSameSamplesTwiceAreTwoLoads) {
  prefetch_->Expect(Loads(0, {1, 1}));
  EXPECT_EQ(gatherer_.Begun(2).size(), 2u);
  prefetch_->Expect(Loads(0, {1, 1, 1}));
  EXPECT_EQ(gatherer_.Begun(2).size(), 2u);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Take(0, {1}), Samples{1});
  EXPECT_EQ(gatherer_.Begun(3).size(), 3u);
  EXPECT_EQ(Take(0, {1}), Samples{1});
}

TEST_F(InputPrefetchTest, FailuresAreLeftToWhoeverLoads) {
  prefetch_->Expect(Loads(0, {-1, 2, 3}));
  EXPECT_EQ(gatherer_.Begun(2).size(), 2u);
  EXPECT_EQ(Take(0, {-1}), std::nullopt);
  EXPECT_EQ(Take(0, {2}), Samples{2});
  EXPECT_EQ(gatherer_.Begun(3).size(), 3u);
  EXPECT_EQ(Take(0, {3}), Samples{3});
}

TEST_F(InputPrefetchTest, EndsAfterTheGatherUnderWay) {
  gatherer_.Open(false);
  prefetch_->Expect(Loads(0, {1, 2}) + Loads(1, {3, 4}));
  gatherer_.AwaitBegun(1);
  std::thread opens([&] {
    absl::SleepFor(absl::Milliseconds(50));
    gatherer_.Open(true);
  });
  prefetch_.reset();
  EXPECT_EQ(gatherer_.ended(), 1u);
  EXPECT_EQ(gatherer_.Begun(1).size(), 1u);
  opens.join();
}

TEST(InputPrefetch, EndsWithNothingToDo) {
  Gatherer gatherer;
  { const InputPrefetch never_used(gatherer.Function()); }
  EXPECT_THAT(gatherer.Begun(0), IsEmpty());
}

// Plans that change while loads are taken, for ThreadSanitizer.
TEST_F(InputPrefetchTest, GivesNothingWrongWhilePlansChange) {
  for (int64_t step = 0; step < 300; ++step) {
    const Samples now = {step, step + 1, step + 2, step + 3}, next = {step + 1, step + 5};
    prefetch_->Expect(Loads(0, now, 2) + Loads(1, now) + Loads(0, next, 2) + Loads(1, next));
    if (step % 3 == 0) absl::SleepFor(absl::Microseconds(50));
    for (int64_t i = step % 2; i < 4; ++i) {
      const auto one = Take(1, {step + i});
      EXPECT_EQ(one.value_or(Samples{step + i}), Samples{step + i});
    }
    const auto two = Take(0, {step, step + 1});
    const Samples first = {step, step + 1};
    EXPECT_EQ(two.value_or(first), first);
  }
}

}  // namespace
}  // namespace stagewright::testing
