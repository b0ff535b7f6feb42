#include "planner_service/profiles/profiling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner_service/store/sqlite_store.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

class ProfilingTest : public ::testing::Test {
 protected:
  ProfilingTest()
      : store_(OpenSqliteStore(":memory:").value().store),
        kept_(store_.get()),
        profiling_(&kept_, &registry_) {}

  int64_t AddWorker(const std::string& name, const std::string& software = "torch, 1 thread") {
    v1::Register message;
    message.set_worker(name);
    message.set_software(software);
    v1::DeviceKind* kind = message.add_kinds();
    kind->set_name("cpu");
    kind->set_flops_per_second(1e9);
    kind->set_memory_bytes_per_second(1e9);
    v1::Device* device = message.add_devices();
    device->set_name("cpu0");
    device->set_memory_bytes(1 << 20);
    auto session = registry_.Register(
        message,
        [this](const v1::ConnectResponse& sent) {
          sent_.push_back(sent);
          return true;
        },
        absl::Now());
    EXPECT_TRUE(session.ok()) << session.status();
    return session.value_or(-1);
  }

  absl::StatusOr<int64_t> Start(const std::string& device, int64_t samples = 0) {
    v1::ProfileGraphRequest request;
    request.mutable_graph()->set_name("model");
    request.set_device(device);
    request.set_most_samples(samples);
    return profiling_.Start(request, [this](auto result) { results_.push_back(result); });
  }

  static v1::OperatorsProfiled Answer(int64_t request, int64_t forward_ns) {
    v1::OperatorsProfiled answer;
    answer.set_request(request);
    v1::MeasuredOperator* measured = answer.mutable_profile()->add_operators();
    measured->set_signature("aten.mm.default()");
    measured->set_measured_on("2026-11-22");
    measured->add_samples()->set_samples(1);
    measured->mutable_samples(0)->set_forward_ns(forward_ns);
    return answer;
  }

  std::string Holder() const { return registry_.Devices(false).front().job; }

  std::unique_ptr<Store> store_;
  ProfileStore kept_;
  WorkerRegistry registry_;
  Profiling profiling_;
  std::vector<v1::ConnectResponse> sent_;
  std::vector<absl::StatusOr<v1::ProfileGraphResponse>> results_;
};

TEST_F(ProfilingTest, TakesADeviceKeepsWhatComesAndFreesIt) {
  AddWorker("w");
  const auto number = Start("");
  ASSERT_TRUE(number.ok()) << number.status();
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].profile_operators().device_name(), "cpu0");
  EXPECT_EQ(sent_[0].profile_operators().graph().name(), "model");
  EXPECT_EQ(sent_[0].profile_operators().most_samples(), 16);
  EXPECT_EQ(Holder(), absl::StrCat("profiles/", *number));
  profiling_.OnProfiled("other", Answer(*number, 5));  // Not whom we asked.
  EXPECT_TRUE(results_.empty());
  profiling_.OnProfiled("w", Answer(*number, 5));
  ASSERT_EQ(results_.size(), 1u);
  ASSERT_TRUE(results_[0].ok()) << results_[0].status();
  EXPECT_EQ(results_[0]->device(), "w/cpu0");
  EXPECT_EQ(results_[0]->profile().device_kind(), "cpu");
  EXPECT_EQ(Holder(), "");
  const auto kept = profiling_.store().Read();
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(
      (*kept)->devices.at({"cpu", "torch, 1 thread"}).at("aten.mm.default()").samples[0].forward,
      5);
  profiling_.OnProfiled("w", Answer(*number, 6));  // Once is enough.
  EXPECT_EQ(results_.size(), 1u);
}

TEST_F(ProfilingTest, RefusesDevicesThatAreNotThereOrNotFree) {
  EXPECT_EQ(Start("").status().code(), absl::StatusCode::kNotFound);
  AddWorker("w");
  EXPECT_EQ(Start("v/cpu0").status().code(), absl::StatusCode::kNotFound);
  for (const int64_t samples : {int64_t{-1}, (int64_t{1} << 20) + 1, int64_t{1} << 62})
    EXPECT_EQ(Start("w", samples).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(registry_.Allocate("jobs/1", {"w/cpu0"}).ok());
  EXPECT_EQ(
      Start("w/cpu0").status(),
      absl::FailedPreconditionError("device \"w/cpu0\" is not free: w/cpu0 is held by jobs/1"));
  registry_.Release("jobs/1");
  EXPECT_TRUE(Start("w").ok());
  EXPECT_TRUE(results_.empty());
}

TEST_F(ProfilingTest, WaitsForADeviceThatARunIsAboutToLeave) {
  AddWorker("w");
  const auto end = [this] { registry_.Ended("w", "jobs/1", 1); };
  for (const bool cancelled : {false, true}) {
    sent_.clear();
    results_.clear();
    ASSERT_TRUE(registry_.Allocate("jobs/1", {"w/cpu0"}).ok());
    registry_.EndRun("jobs/1", 1, {"w/cpu0"});
    const auto number = Start("");
    ASSERT_TRUE(number.ok()) << number.status();
    profiling_.Tick();
    EXPECT_TRUE(sent_.empty());
    if (cancelled) {
      profiling_.Cancel(*number);
      ASSERT_EQ(results_.size(), 1u);
      EXPECT_EQ(results_[0].status().code(), absl::StatusCode::kCancelled);
    }
    end();
    profiling_.Tick();
    EXPECT_EQ(Holder(), cancelled ? "" : absl::StrCat("profiles/", *number));
    if (cancelled) continue;
    ASSERT_EQ(sent_.size(), 1u);
    EXPECT_EQ(sent_[0].profile_operators().graph().name(), "model");
    profiling_.OnProfiled("w", Answer(*number, 5));
    ASSERT_EQ(results_.size(), 1u);
    EXPECT_TRUE(results_[0].ok()) << results_[0].status();
  }
  EXPECT_TRUE(sent_.empty()) << "what was cancelled before it began is told to nobody";
}

TEST_F(ProfilingTest, ADeviceThatARunDoesNotLeaveIsNotWaitedForLong) {
  AddWorker("w");
  ASSERT_TRUE(registry_.Allocate("jobs/1", {"w/cpu0"}).ok());
  registry_.EndRun("jobs/1", 1, {"w/cpu0"});
  ASSERT_TRUE(Start("").ok());
  const absl::Time now = absl::Now();
  registry_.Tick(now);
  profiling_.Tick();
  EXPECT_TRUE(results_.empty());
  registry_.Tick(now + kRunsEndWithin);
  profiling_.Tick();
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(results_[0].status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(results_[0].status().message()), HasSubstr("jobs/1"));
}

TEST_F(ProfilingTest, WhatWaitsIsRefusedWhenTheDeviceIsTakenOrGone) {
  const int64_t session = AddWorker("w");
  for (const bool gone : {false, true}) {
    ASSERT_TRUE(registry_.Allocate("jobs/1", {"w/cpu0"}).ok());
    registry_.EndRun("jobs/1", 1, {"w/cpu0"});
    ASSERT_TRUE(Start("w").ok());
    registry_.Ended("w", "jobs/1", 1);
    if (gone) {
      ASSERT_TRUE(registry_.Unregister("w", session));
    } else {
      ASSERT_TRUE(registry_.Allocate("jobs/2", {"w/cpu0"}).ok());
    }
    profiling_.Tick();
    ASSERT_EQ(results_.size(), gone ? 2u : 1u);
    EXPECT_EQ(results_.back().status().code(),
              gone ? absl::StatusCode::kNotFound : absl::StatusCode::kFailedPrecondition);
    registry_.Release("jobs/2");
  }
}

TEST_F(ProfilingTest, AnOldWorkerIsNotAsked) {
  AddWorker("w", "");
  EXPECT_THAT(Start("").status().message(), HasSubstr("does not measure"));
  EXPECT_EQ(Holder(), "");
}

TEST_F(ProfilingTest, BadAnswersAndFailuresAreToldAndNotKept) {
  AddWorker("w");
  profiling_.OnProfiled("w", Answer(*Start(""), -5));
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_THAT(results_[0].status().message(), HasSubstr("worker w: "));
  EXPECT_THAT(results_[0].status().message(), HasSubstr("forward_ns is -5"));
  v1::OperatorsProfiled failed;
  failed.set_request(*Start(""));
  failed.set_code(static_cast<int32_t>(absl::StatusCode::kInvalidArgument));
  failed.set_message("no operators to run");
  profiling_.OnProfiled("w", failed);
  ASSERT_EQ(results_.size(), 2u);
  EXPECT_EQ(results_[1].status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(results_[1].status().message(), HasSubstr("no operators to run"));
  EXPECT_TRUE((*profiling_.store().Read())->empty());
  EXPECT_EQ(Holder(), "");
}

TEST_F(ProfilingTest, EndsWhenCancelledAndTellsTheWorker) {
  AddWorker("w");
  const auto number = Start("");
  ASSERT_TRUE(number.ok());
  profiling_.Cancel(*number);
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(results_[0].status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(sent_.back().stop_profiling().request(), *number);
  profiling_.Cancel(*number);
  EXPECT_EQ(results_.size(), 1u);
  // The worker may still compute: no job gets the device before it says that it has stopped.
  EXPECT_EQ(Holder(), absl::StrCat("profiles/", *number));
  v1::OperatorsProfiled stopped;
  stopped.set_request(*number);
  stopped.set_code(static_cast<int32_t>(absl::StatusCode::kCancelled));
  profiling_.OnProfiled("w", stopped);
  EXPECT_EQ(Holder(), "");
  EXPECT_EQ(results_.size(), 1u);
}

TEST_F(ProfilingTest, AnswersToAnEarlierPlannerAreNoneToThisOne) {
  AddWorker("w");
  const auto first = Start("");
  ASSERT_TRUE(first.ok());
  absl::SleepFor(absl::Milliseconds(1));
  Profiling later(&kept_, &registry_);
  registry_.Release(absl::StrCat("profiles/", *first));
  v1::ProfileGraphRequest request;
  const auto second = later.Start(request, [](auto) {});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_GT(*second, *first);
}

TEST_F(ProfilingTest, EndsWithItsWorker) {
  const int64_t session = AddWorker("w");
  ASSERT_TRUE(Start("").ok());
  profiling_.Tick();
  EXPECT_TRUE(results_.empty());
  ASSERT_TRUE(registry_.Unregister("w", session));
  profiling_.Tick();
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(results_[0].status().code(), absl::StatusCode::kUnavailable);
  const int64_t next = AddWorker("v");
  ASSERT_TRUE(Start("").ok());
  ASSERT_TRUE(registry_.Unregister("v", next));
  profiling_.OnLost("v");
  EXPECT_EQ(results_.size(), 2u);
}

// A worker that was silent for too long comes back as soon as it is told, before anybody looks.
TEST_F(ProfilingTest, EndsWithTheSessionOfItsWorker) {
  const int64_t session = AddWorker("w");
  ASSERT_TRUE(Start("").ok());
  ASSERT_TRUE(registry_.Unregister("w", session));
  AddWorker("w");
  profiling_.Tick();
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(results_[0].status().code(), absl::StatusCode::kUnavailable);

  ASSERT_TRUE(Start("").ok());
  profiling_.OnLost("w");  // The stream before says late that it has ended.
  profiling_.Tick();
  EXPECT_EQ(results_.size(), 1u) << "what the new session measures goes on";
}

}  // namespace
}  // namespace stagewright
