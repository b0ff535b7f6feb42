#include "planner_service/service/plan_cache.h"

#include <gmock/gmock.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;
using Use = PlanCache::Use;

// What is told of an answer, which is kept encoded.
v1::PlanResponse Read(const PlanCache::Answer& answer) {
  v1::PlanResponse response;
  grpc::ByteBuffer encoded = *answer;
  EXPECT_TRUE(grpc::SerializationTraits<v1::PlanResponse>::Deserialize(&encoded, &response).ok());
  return response;
}

v1::PlanRequest RequestOf(const std::string& planner) {
  v1::PlanRequest request;
  request.set_planner(planner);
  return request;
}

PlanCache::Deadline In(absl::Duration time) {
  return SearchContext::Clock::now() + absl::ToChronoNanoseconds(time);
}

// A search that counts, and waits for `go` if it is told to.
class PlanCacheTest : public ::testing::Test {
 protected:
  absl::StatusOr<PlanCache::Found> Search(const v1::PlanRequest& request, SearchContext& context) {
    PlanCache::Found found;
    if (readable_) found.version = version_;
    ++searches_;
    while (waits_ && !go_.HasBeenNotified() && !context.Expired())
      absl::SleepFor(absl::Milliseconds(1));
    if (request.planner() == "wrong") return absl::InvalidArgumentError("wrong");
    found.response.set_reason(request.planner());
    return found;
  }

  int64_t Ask(PlanningPool& pool, const std::string& planner, PlanCache::Deadline deadline,
              PlanCache::Done done, const std::string& caller = "caller") {
    const v1::PlanRequest request = RequestOf(planner);
    return cache_.Ask(pool, caller, request.SerializeAsString(), request, deadline,
                      std::move(done));
  }

  // Waits for the answer.
  PlanCache::Answer Ask(const std::string& planner,
                        PlanCache::Deadline deadline = PlanCache::Deadline::max()) {
    absl::Notification done;
    PlanCache::Answer answer = absl::UnknownError("");
    Ask(pool_, planner, deadline, [&](const PlanCache::Answer& given) {
      answer = given;
      done.Notify();
    });
    done.WaitForNotification();
    return answer;
  }

  std::atomic<int> searches_{0};
  std::atomic<int64_t> version_{1};
  std::atomic<bool> readable_{true};
  std::atomic<bool> waits_{false};
  absl::Notification go_;
  absl::Mutex mutex_;
  std::vector<Use> uses_;
  PlanCache cache_{[this](const auto& request, auto& context) { return Search(request, context); },
                   [this] { return version_.load(); }, 1 << 20,
                   [this](Use use) {
                     absl::MutexLock lock(&mutex_);
                     uses_.push_back(use);
                   }};
  PlanningPool pool_{2, 16};  // Ends before the cache.
};

TEST_F(PlanCacheTest, AnEqualQuestionIsAnsweredWithoutASearch) {
  const auto first = Ask("a"), again = Ask("a"), other = Ask("b");
  ASSERT_TRUE(first.ok() && again.ok() && other.ok());
  EXPECT_EQ(searches_, 2);
  EXPECT_FALSE(Read(first).cached());
  EXPECT_TRUE(Read(again).cached());
  EXPECT_EQ(Read(again).reason(), "a");
  EXPECT_EQ(Read(other).reason(), "b");
  EXPECT_THAT(uses_, ElementsAre(Use::kMiss, Use::kHit, Use::kMiss));
}

TEST_F(PlanCacheTest, WhatIsKeptIsFoundByItsBytesAlone) {
  const std::string question = RequestOf("a").SerializeAsString();
  EXPECT_FALSE(cache_.Find(question).has_value());
  EXPECT_THAT(uses_, ElementsAre());  // The question is yet to be asked.
  ASSERT_TRUE(Ask("a").ok());
  const auto found = cache_.Find(question);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(Read(*found).reason(), "a");
  EXPECT_FALSE(cache_.Find(RequestOf("b").SerializeAsString()).has_value());
  EXPECT_THAT(uses_, ElementsAre(Use::kMiss, Use::kHit));
}

TEST_F(PlanCacheTest, AnAnswerOfOtherMeasurementsIsNoneAnyMore) {
  ASSERT_TRUE(Ask("a").ok());
  ++version_;
  EXPECT_FALSE(cache_.Find(RequestOf("a").SerializeAsString()).has_value());
  EXPECT_EQ(cache_.bytes(), 0);
  EXPECT_FALSE(Read(Ask("a")).cached());
  EXPECT_TRUE(Read(Ask("a")).cached());
  EXPECT_EQ(searches_, 2);
}

TEST_F(PlanCacheTest, MeasurementsThatComeWhileItIsSearchedAreNotMissed) {
  waits_ = true;
  absl::Notification done;
  Ask(pool_, "a", In(absl::Hours(1)), [&](const auto&) { done.Notify(); });
  while (searches_ == 0) absl::SleepFor(absl::Milliseconds(1));

  ++version_;
  go_.Notify();
  done.WaitForNotification();
  EXPECT_FALSE(Read(Ask("a")).cached());
}

TEST_F(PlanCacheTest, AnAnswerWithoutTheMeasurementsThatItNamesIsNotKept) {
  readable_ = false;
  ASSERT_TRUE(Ask("a").ok());
  EXPECT_EQ(cache_.bytes(), 0);
  readable_ = true;
  EXPECT_FALSE(Read(Ask("a")).cached());
  EXPECT_TRUE(Read(Ask("a")).cached());
}

TEST_F(PlanCacheTest, EqualQuestionsAtTheSameTimeShareOneSearch) {
  waits_ = true;
  constexpr int kCallers = 20;
  absl::BlockingCounter done(kCallers);
  const PlanCache::Deadline deadline = In(absl::Hours(1));
  std::atomic<int> good{0};
  for (int i = 0; i < kCallers; ++i) {
    Ask(pool_, "a", deadline, [&](const PlanCache::Answer& answer) {
      good += answer.ok() ? 1 : 0;
      done.DecrementCount();
    });
  }
  go_.Notify();
  done.Wait();
  EXPECT_EQ(searches_, 1);
  EXPECT_EQ(good, kCallers);
}

TEST_F(PlanCacheTest, ASearchThatTheClockCutShortIsNotKept) {
  waits_ = true;
  EXPECT_TRUE(Ask("a", In(absl::Milliseconds(20))).ok());
  EXPECT_TRUE(Ask("a", In(absl::Milliseconds(20))).ok());
  EXPECT_EQ(searches_, 2);
  EXPECT_EQ(cache_.bytes(), 0);
}

TEST_F(PlanCacheTest, AQuestionWithMuchMoreOrLessTimeIsSearchedByItself) {
  waits_ = true;
  absl::BlockingCounter done(3);
  for (const absl::Duration time : {absl::Hours(1), absl::Hours(9), absl::Minutes(1)}) {
    Ask(pool_, "a", In(time), [&](const auto&) { done.DecrementCount(); });
  }
  go_.Notify();
  done.Wait();
  EXPECT_THAT(uses_, ElementsAre(Use::kMiss, Use::kMiss, Use::kMiss));
}

TEST_F(PlanCacheTest, ASearchEndsWhenTheLastOfItsCallersGoes) {
  waits_ = true;
  absl::Notification answered;
  const PlanCache::Deadline deadline = In(absl::Hours(1));
  const int64_t first = Ask(pool_, "a", deadline, [](const auto&) { FAIL(); });
  const int64_t second = Ask(pool_, "a", deadline, [](const auto&) { FAIL(); });
  EXPECT_TRUE(cache_.Cancel(first));
  EXPECT_FALSE(cache_.Cancel(first));
  EXPECT_TRUE(cache_.Cancel(second));
  // The next one does not join the search that ends.
  Ask(pool_, "a", deadline, [&](const PlanCache::Answer& answer) {
    EXPECT_TRUE(answer.ok());
    answered.Notify();
  });
  go_.Notify();
  answered.WaitForNotification();
  EXPECT_EQ(uses_.back(), Use::kMiss);
}

TEST_F(PlanCacheTest, ErrorsAreAnswersAndNotKept) {
  EXPECT_EQ(Ask("wrong").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Ask("wrong").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(searches_, 2);
}

TEST_F(PlanCacheTest, AFullPoolIsAnAnswer) {
  waits_ = true;
  PlanningPool small(1, 0);
  std::atomic<int> refused{0};
  const auto count = [&](const PlanCache::Answer& answer) {
    refused += answer.status().code() == absl::StatusCode::kResourceExhausted ? 1 : 0;
  };
  // Until the only thread is busy, questions may be refused because it is not there yet.
  while (searches_ == 0) {
    Ask(small, "first", In(absl::Hours(1)), count);
    absl::SleepFor(absl::Milliseconds(1));
  }
  const int before = refused;
  Ask(small, "second", In(absl::Hours(1)), count);
  EXPECT_EQ(refused, before + 1);
  go_.Notify();
}

TEST_F(PlanCacheTest, QuestionsThatWereTakenBackMakeRoomInAFullQueue) {
  absl::Notification started, go, answered;
  PlanningPool busy(1, 2);
  ASSERT_TRUE(busy.Submit([&] {
                    started.Notify();
                    go.WaitForNotification();
                  })
                  .ok());
  started.WaitForNotification();
  const PlanCache::Deadline deadline = In(absl::Hours(1));
  const auto none = [](const auto&) { FAIL(); };
  for (const char* planner : {"first", "second"})
    EXPECT_TRUE(cache_.Cancel(Ask(busy, planner, deadline, none)));
  Ask(busy, "third", deadline, [&](const PlanCache::Answer& answer) {
    EXPECT_TRUE(answer.ok()) << answer.status();
    answered.Notify();
  });
  EXPECT_EQ(busy.queued(), 1);
  go.Notify();
  answered.WaitForNotification();
  EXPECT_EQ(searches_, 1);
}

TEST_F(PlanCacheTest, WhoSharesASearchKeepsTheirOwnTurn) {
  waits_ = true;
  PlanningPool small(1, 2, PlanningPool::kNicer, absl::InfiniteDuration());
  const auto never = PlanCache::Deadline::max();
  std::vector<std::string> answers;  // By whoever runs the search, and once by this thread.
  const auto note = [&](const std::string& who) {
    return [&, who](const PlanCache::Answer& answer) {
      absl::MutexLock lock(&mutex_);
      answers.push_back(absl::StrCat(who, answer.ok() ? "" : " refused"));
    };
  };
  Ask(small, "busy", never, note("busy"), "eve");
  while (searches_ == 0) absl::SleepFor(absl::Milliseconds(1));
  Ask(small, "other", never, note("eve, other"), "eve");
  Ask(small, "same", never, note("eve"), "eve");
  // The queue is full, and eve's turn for it leaves; the search is ada's then.
  Ask(small, "same", never, note("ada"), "ada");
  {
    absl::MutexLock lock(&mutex_);
    EXPECT_THAT(answers, ElementsAre("eve refused"));
    EXPECT_EQ(uses_.back(), Use::kShared);
  }
  go_.Notify();
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](std::vector<std::string>* all) { return all->size() == 4; }, &answers));
  EXPECT_THAT(answers, UnorderedElementsAre("eve refused", "busy", "eve, other", "ada"));
  EXPECT_EQ(searches_, 3);
}

TEST_F(PlanCacheTest, ASearchThatTwoWaitForRunsOnce) {
  waits_ = true;
  PlanningPool small(1, 4, PlanningPool::kNicer, absl::InfiniteDuration());
  const auto never = PlanCache::Deadline::max();
  absl::BlockingCounter answered(3);
  const auto count = [&](const PlanCache::Answer& answer) {
    EXPECT_TRUE(answer.ok());
    answered.DecrementCount();
  };
  Ask(small, "busy", never, count, "eve");
  while (searches_ == 0) absl::SleepFor(absl::Milliseconds(1));
  Ask(small, "same", never, count, "eve");
  Ask(small, "same", never, count, "ada");
  EXPECT_EQ(small.queued(), 2) << "a turn each";
  go_.Notify();
  answered.Wait();
  EXPECT_EQ(searches_, 2);
}

TEST_F(PlanCacheTest, KeepsWhatWasAskedForLastWithinItsBytes) {
  const std::string large(100'000, 'x');
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(Ask(absl::StrCat(i, large)).ok());
    ASSERT_TRUE(Ask("often").ok());
  }
  EXPECT_LE(cache_.bytes(), 1 << 20);
  const int before = searches_;
  ASSERT_TRUE(Ask("often").ok());
  ASSERT_TRUE(Ask(absl::StrCat(39, large)).ok());
  EXPECT_EQ(searches_, before);
  ASSERT_TRUE(Ask(absl::StrCat(0, large)).ok());
  EXPECT_EQ(searches_, before + 1);
}

}  // namespace
}  // namespace stagewright
