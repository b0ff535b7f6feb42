#include "planner_service/lifecycle/job_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/error_details.h"
#include "common/wire/graph_proto.h"
#include "planner_service/planner/planner.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"
#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::JobHarness;
using ::testing::Not;
using ::testing::Pair;
using testing::RecordingStore;
using testing::SmallSpec;
using Message = v1::ConnectResponse;

constexpr v1::JobState kStates[] = {v1::JOB_STATE_PENDING, v1::JOB_STATE_STARTING,
                                    v1::JOB_STATE_RUNNING};

class JobManagerTest : public ::testing::Test {
 protected:
  JobManagerTest() : harness_(std::make_unique<JobHarness>(&store_)) {}

  void ConnectBoth() {
    harness_->Connect("a");
    harness_->Connect("b");
  }
  // A job that stays in `state`: a worker is missing, or does not answer.
  std::string JobIn(v1::JobState state) {
    harness_->Connect("a");
    if (state != v1::JOB_STATE_PENDING) harness_->Connect("b");
    if (state == v1::JOB_STATE_STARTING) harness_->Worker("b").silent_on = {Message::kConnectPeers};
    if (state == v1::JOB_STATE_RUNNING) harness_->Worker("b").silent_on = {Message::kStart};
    std::string job = harness_->Submit(SmallSpec());
    EXPECT_EQ(harness_->Await(job, state).state(), state);
    harness_->Pump();
    EXPECT_EQ(harness_->Get(job).state(), state);
    return job;
  }
  // Frees both workers and shows that the next job succeeds on them.
  void ExpectNextJobSucceeds() {
    for (const char* name : {"a", "b"}) {
      if (!harness_->registry.Connected(name)) harness_->Connect(name);
      harness_->Worker(name).silent_on.clear();
      harness_->Worker(name).refusal.clear();
      harness_->Worker(name).total_steps = 3;
    }
    const std::string job = harness_->Submit(SmallSpec());
    const v1::Job ended = harness_->Await(job, v1::JOB_STATE_SUCCEEDED);
    EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.message();
  }
  // Another planner process on the same store.
  void Restart(JobManagerOptions options = {}) {
    harness_->jobs->Suspend();
    harness_ = std::make_unique<JobHarness>(&store_, std::move(options));
  }

  RecordingStore store_;
  std::unique_ptr<JobHarness> harness_;
};

TEST_F(JobManagerTest, AJobGoesThroughAllStatesEachStoredBeforeItIsSeen) {
  ConnectBoth();
  const std::string job = harness_->Submit(SmallSpec());
  const v1::Job ended = harness_->Await(job, v1::JOB_STATE_SUCCEEDED);
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.message();
  EXPECT_THAT(
      harness_->announced,
      ElementsAre(Pair(job, v1::JOB_STATE_PENDING), Pair(job, v1::JOB_STATE_PLANNING),
                  Pair(job, v1::JOB_STATE_WAITING_FOR_DEVICES), Pair(job, v1::JOB_STATE_STARTING),
                  Pair(job, v1::JOB_STATE_RUNNING), Pair(job, v1::JOB_STATE_SUCCEEDED)));
  EXPECT_FALSE(harness_->announced_before_stored);
  EXPECT_EQ(store_.State(job), v1::JOB_STATE_SUCCEEDED);

  EXPECT_EQ(ended.metrics().step(), 3);
  EXPECT_EQ(ended.metrics().total_steps(), 3);
  EXPECT_EQ(ended.metrics().step_ns(), 3'000'000);
  EXPECT_EQ(ended.metrics().median_step_ns(), 2'000'000);
  EXPECT_DOUBLE_EQ(ended.metrics().loss(), 1.0);  // Two devices saw half of it each.
  EXPECT_DOUBLE_EQ(ended.metrics().accuracy(), 0.9);
  EXPECT_EQ(ended.checkpoint_path(), ended.spec().output_path() + "/model.safetensors");
  EXPECT_EQ(ended.generation(), 1);
  EXPECT_TRUE(ended.has_end_time());
  EXPECT_THAT(ended.devices(), ElementsAre("a/cpu0", "b/cpu0"));
  for (const char* worker : {"a", "b"}) {
    EXPECT_EQ(harness_->Heard(worker, Message::kStart), 1);
    EXPECT_EQ(harness_->Heard(worker, Message::kAbort), 0);
    EXPECT_EQ(harness_->Heard(worker, Message::kRelease), 1);
  }
  EXPECT_EQ(harness_->Heard("a", Message::kMerge) + harness_->Heard("b", Message::kMerge), 1);
  EXPECT_EQ(harness_->registry.Devices(/*free_only=*/true).size(), 2u);
}

TEST_F(JobManagerTest, ANewJobWaitsForLinksThatAreBeingMeasuredButNotForLong) {
  bool measuring = true;
  JobManagerOptions options;
  options.measuring = [&] { return measuring; };
  harness_ = std::make_unique<JobHarness>(&store_, options);
  ConnectBoth();
  const std::string first = harness_->Submit(SmallSpec());
  EXPECT_EQ(harness_->Get(first).state(), v1::JOB_STATE_PENDING);
  EXPECT_THAT(harness_->Get(first).message(), HasSubstr("links that are being measured"));
  measuring = false;
  harness_->jobs->Tick(absl::Now());
  EXPECT_EQ(harness_->Await(first, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);

  measuring = true;  // For ever.
  options.measuring_timeout = absl::ZeroDuration();
  harness_ = std::make_unique<JobHarness>(&store_, options);
  ConnectBoth();
  const std::string second = harness_->Submit(SmallSpec());
  EXPECT_EQ(harness_->Await(second, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobManagerTest, TraceIsOrderedByStepStartAndDeviceAndSurvivesARestart) {
  ConnectBoth();
  const std::string job = harness_->Submit(SmallSpec());
  EXPECT_EQ(harness_->jobs->Trace(job).status().code(), absl::StatusCode::kFailedPrecondition);
  harness_->Await(job, v1::JOB_STATE_SUCCEEDED);
  for (int round = 0; round < 2; ++round) {
    const auto trace = harness_->jobs->Trace(job);
    ASSERT_TRUE(trace.ok()) << trace.status();
    ASSERT_EQ(trace->measured_size(), 6);
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(trace->measured(i).step(), i / 2);
      EXPECT_EQ(trace->measured(i).device(), i % 2);
    }
    EXPECT_GT(trace->predicted_size(), 0);
    EXPECT_THAT(trace->devices(), ElementsAre("a/cpu0", "b/cpu0"));
    Restart();
  }
  EXPECT_EQ(harness_->jobs->Trace("jobs/99").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(JobManagerTest, ARepeatedRequestIdMakesNoSecondJobAlsoAfterARestart) {
  const std::string job = harness_->Submit(SmallSpec(), "once");
  EXPECT_EQ(harness_->Submit(SmallSpec(), "once"), job);
  EXPECT_NE(harness_->Submit(SmallSpec(), "twice"), job);
  EXPECT_NE(harness_->Submit(SmallSpec()), harness_->Submit(SmallSpec()));
  Restart();
  EXPECT_EQ(harness_->Submit(SmallSpec(), "once"), job);
  EXPECT_EQ(harness_->Submit(SmallSpec()), "jobs/5");
}

TEST_F(JobManagerTest, ABadSpecMakesNoJob) {
  v1::JobSpec spec = SmallSpec();
  spec.set_mini_batch(0);
  EXPECT_EQ(harness_->jobs->Submit(spec, "x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(harness_->List().empty());
}

TEST_F(JobManagerTest, CancelEndsAJobInEveryState) {
  for (v1::JobState state : kStates) {
    SCOPED_TRACE(v1::JobState_Name(state));
    harness_ = std::make_unique<JobHarness>(&store_);
    const std::string job = JobIn(state);
    const auto cancelled = harness_->jobs->Cancel(job);
    ASSERT_TRUE(cancelled.ok()) << cancelled.status();
    EXPECT_EQ(cancelled->state(), v1::JOB_STATE_CANCELLED);
    EXPECT_EQ(store_.State(job), v1::JOB_STATE_CANCELLED);
    EXPECT_TRUE(harness_->jobs->Cancel(job).ok());  // Once more changes nothing.
    const bool on_workers = state != v1::JOB_STATE_PENDING;
    EXPECT_EQ(harness_->Heard("a", Message::kAbort), on_workers ? 1 : 0);
    ExpectNextJobSucceeds();
    EXPECT_FALSE(harness_->announced_before_stored);
  }
}

TEST_F(JobManagerTest, CancelWhilePlanningStopsTheSearch) {
  ConnectBoth();
  const std::string job = harness_->Submit(SmallSpec());
  ASSERT_TRUE(harness_->jobs->Cancel(job).ok());
  harness_->Pump();
  EXPECT_EQ(harness_->Heard("a", Message::kPrepare), 0);
  ExpectNextJobSucceeds();
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobManagerTest, AJobBeingPlannedWhenThePlannerEndsIsPlannedByTheNext) {
  testing::GraphBuilder builder("long");
  Argument x = builder.Feature("x", {16});
  for (int i = 0; i < 100; ++i) x = builder.Linear(x, 16, 16);
  builder.Loss(x, {16});
  v1::JobSpec spec = SmallSpec();
  *spec.mutable_graph() = ToProto(builder.Build());
  spec.clear_planner();
  spec.clear_plan_options();
  spec.mutable_plan_options()->set_effort(kMostSearchEffort);
  // The search takes hours: it ends because the manager goes away.
  JobManagerOptions options;
  options.default_planner = "graphpipe";
  Restart(options);
  ConnectBoth();
  const std::string job = harness_->Submit(spec);
  ASSERT_EQ(harness_->Get(job).state(), v1::JOB_STATE_PLANNING);
  harness_->jobs.reset();
  EXPECT_EQ(store_.State(job), v1::JOB_STATE_PLANNING);
  options.default_planner = "data-parallel";
  harness_ = std::make_unique<JobHarness>(&store_, options);
  ConnectBoth();
  EXPECT_EQ(harness_->Await(job, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobManagerTest, CancelRefusesWhatIsNotThereOrOver) {
  EXPECT_EQ(harness_->jobs->Cancel("jobs/1").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(harness_->jobs->Cancel("nonsense").status().code(), absl::StatusCode::kNotFound);
  ConnectBoth();
  const std::string job = harness_->Submit(SmallSpec());
  harness_->Await(job, v1::JOB_STATE_SUCCEEDED);
  const absl::Status over = harness_->jobs->Cancel(job).status();
  EXPECT_EQ(over.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(over.message()), HasSubstr("succeeded"));
}

TEST_F(JobManagerTest, ALostWorkerFailsItsJobAndNoOther) {
  for (v1::JobState state : {v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING}) {
    SCOPED_TRACE(v1::JobState_Name(state));
    harness_ = std::make_unique<JobHarness>(&store_);
    const std::string job = JobIn(state);
    harness_->Connect("bystander");
    harness_->Disconnect("bystander");
    EXPECT_EQ(harness_->Get(job).state(), state);
    harness_->Disconnect("b");
    if (state == v1::JOB_STATE_RUNNING) {  // It may come back.
      EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_RECOVERING);
      harness_->registry.Heartbeat("a", harness_->Worker("a").session,
                                   absl::Now() + absl::Seconds(11));
      harness_->jobs->Tick(absl::Now() + absl::Seconds(11));
    }
    const v1::Job failed = harness_->Get(job);
    EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
    EXPECT_THAT(failed.message(), HasSubstr("worker b was lost"));
    EXPECT_EQ(harness_->Heard("a", Message::kAbort), 1);
    ExpectNextJobSucceeds();
  }
}

TEST_F(JobManagerTest, AWorkerLostBeforeTheStartMeansPlanningAgain) {
  ConnectBoth();
  harness_->Worker("a").silent_on = {Message::kStart};
  const std::string first = harness_->Submit(SmallSpec());
  harness_->Await(first, v1::JOB_STATE_RUNNING);
  const std::string second = harness_->Submit(SmallSpec());
  harness_->Pump();
  // Both devices are held: the second waits for them before it is planned.
  EXPECT_EQ(harness_->Get(second).state(), v1::JOB_STATE_PENDING);
  harness_->Disconnect("b");
  harness_->registry.Heartbeat("a", harness_->Worker("a").session, absl::Now() + absl::Seconds(11));
  harness_->jobs->Tick(absl::Now() + absl::Seconds(11));
  EXPECT_EQ(harness_->Get(first).state(), v1::JOB_STATE_FAILED);
  harness_->Worker("a").silent_on.clear();
  harness_->Connect("c");
  const v1::Job ended = harness_->Await(second, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.message();
  EXPECT_THAT(ended.devices(), ElementsAre("a/cpu0", "c/cpu0"));
}

TEST_F(JobManagerTest, ARefusalInPrepareAbortsAll) {
  ConnectBoth();
  harness_->Worker("b").refusal = "device cpu0: out of memory";
  const std::string job = harness_->Submit(SmallSpec());
  const v1::Job failed = harness_->Await(job, v1::JOB_STATE_FAILED);
  EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(failed.message(), "worker b: device cpu0: out of memory");
  EXPECT_EQ(failed.failure_code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(harness_->Heard("a", Message::kAbort), 1);
  EXPECT_EQ(harness_->Heard("a", Message::kStart), 0);
  ExpectNextJobSucceeds();
}

TEST_F(JobManagerTest, WorkersThatCountDifferentStepsDoNotStart) {
  ConnectBoth();
  harness_->Worker("b").total_steps = 4;
  const std::string job = harness_->Submit(SmallSpec());
  const v1::Job failed = harness_->Await(job, v1::JOB_STATE_FAILED);
  EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(failed.message(), HasSubstr("disagree on the data"));
  EXPECT_EQ(harness_->Heard("a", Message::kStart), 0);
  ExpectNextJobSucceeds();
}

TEST_F(JobManagerTest, MessagesOfOtherGenerationsAndOtherWorkersAreIgnored) {
  const std::string job = JobIn(v1::JOB_STATE_RUNNING);
  harness_->Connect("stranger");
  v1::ConnectRequest failed;
  failed.mutable_failed()->set_job(job);
  failed.mutable_failed()->set_message("boom");
  for (int64_t generation : {0, 2, -1}) {
    failed.mutable_failed()->set_generation(generation);
    harness_->jobs->OnMessage("a", failed);
    EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_RUNNING);
  }
  failed.mutable_failed()->set_generation(1);
  harness_->jobs->OnMessage("stranger", failed);
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_RUNNING);
  failed.mutable_failed()->set_job("jobs/77");
  harness_->jobs->OnMessage("a", failed);
  failed.mutable_failed()->set_job(job);
  harness_->jobs->OnMessage("a", failed);
  EXPECT_EQ(harness_->Get(job).message(), "worker a: boom");
}

TEST_F(JobManagerTest, AStartThatTakesTooLongFailsAndNamesWhoDidNotAnswer) {
  const std::string job = JobIn(v1::JOB_STATE_STARTING);
  harness_->PassUntil(absl::Now() + absl::Seconds(115));
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_STARTING);
  harness_->PassUntil(absl::Now() + absl::Seconds(121));
  const v1::Job failed = harness_->Get(job);
  EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(failed.message(), HasSubstr("no answer from b"));
  EXPECT_THAT(failed.message(), Not(HasSubstr("from a")));
  EXPECT_EQ(harness_->Heard("b", Message::kAbort), 1);
}

TEST_F(JobManagerTest, AStartWaitsForWorkersThatFetch) {
  const std::string job = JobIn(v1::JOB_STATE_STARTING);
  const absl::Time begin = absl::Now();
  const auto tick = [&](int seconds) {
    harness_->PassUntil(begin + absl::Seconds(seconds));
    return harness_->Get(job);
  };
  const auto fetched = [&](int64_t bytes) {
    v1::ConnectRequest message;
    message.mutable_fetching()->set_job(job);
    message.mutable_fetching()->set_generation(1);
    message.mutable_fetching()->set_fetched_bytes(bytes);
    message.mutable_fetching()->set_total_bytes(int64_t{2} << 30);
    harness_->jobs->OnMessage("b", message);
  };
  tick(100);
  fetched(int64_t{1} << 30);
  EXPECT_EQ(tick(200).state(), v1::JOB_STATE_STARTING);
  EXPECT_EQ(tick(201).message(), "preparing workers: 1 GiB of 2 GiB of weights fetched");
  fetched(int64_t{1} << 30);  // No more than before.
  EXPECT_EQ(tick(225).state(), v1::JOB_STATE_FAILED);
}

TEST_F(JobManagerTest, WhatAWorkerFetchedMustBePossible) {
  const std::string job = JobIn(v1::JOB_STATE_STARTING);
  v1::ConnectRequest message;
  message.mutable_fetching()->set_job(job);
  message.mutable_fetching()->set_generation(1);
  message.mutable_fetching()->set_fetched_bytes(2);
  message.mutable_fetching()->set_total_bytes(1);
  harness_->jobs->OnMessage("b", message);
  EXPECT_THAT(harness_->Get(job).message(), HasSubstr("fetching.total_bytes"));
}

TEST_F(JobManagerTest, ASilentWorkerIsLost) {
  const std::string job = JobIn(v1::JOB_STATE_RUNNING);
  harness_->registry.Heartbeat("a", harness_->Worker("a").session, absl::Now() + absl::Seconds(11));
  harness_->jobs->Tick(absl::Now() + absl::Seconds(11));
  EXPECT_THAT(harness_->Get(job).message(), HasSubstr("worker b was lost"));
  EXPECT_THAT(harness_->Get(job).message(), HasSubstr("no heartbeat for 10s"));
  EXPECT_FALSE(harness_->registry.Connected("b"));
  // Its stream is over: what it says on it is refused, so that it registers again.
  EXPECT_FALSE(harness_->registry.Heartbeat("b", harness_->Worker("b").session, absl::Now()));
}

TEST_F(JobManagerTest, ARunningJobOutlivesThePlannerIfItsWorkersComeBack) {
  const std::string job = JobIn(v1::JOB_STATE_RUNNING);
  Restart();
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_RECOVERING);
  harness_->Connect("a", {{job, 1}});
  harness_->Connect("b", {{job, 1}});
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(harness_->Heard("a", Message::kAbort), 0);
  EXPECT_EQ(harness_->registry.Devices(/*free_only=*/true).size(), 0u);
  for (const char* name : {"a", "b"}) {
    harness_->registry.Heartbeat(name, harness_->Worker(name).session,
                                 absl::Now() + absl::Hours(1));
  }
  harness_->jobs->Tick(absl::Now() + absl::Hours(1));
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_RUNNING);
  for (const char* name : {"a", "b"}) {
    v1::ConnectRequest finished;
    finished.mutable_finished()->set_job(job);
    finished.mutable_finished()->set_generation(1);
    harness_->jobs->OnMessage(name, finished);
    harness_->jobs->OnMessage(name, finished);  // Said twice counts once.
  }
  EXPECT_EQ(harness_->Heard("a", Message::kMerge), 1);
  EXPECT_EQ(harness_->Await(job, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobManagerTest, AWorkerThatComesBackCarriesOn) {
  const std::string job = JobIn(v1::JOB_STATE_RUNNING);
  harness_->Disconnect("b");
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_RECOVERING);
  harness_->Connect("b", {{job, 1}});
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(harness_->Heard("b", Message::kAbort), 0);
  EXPECT_EQ(harness_->registry.Devices(/*free_only=*/true).size(), 0u);
}

TEST_F(JobManagerTest, AWorkerThatComesBackWithoutItsJobEndsIt) {
  const std::string job = JobIn(v1::JOB_STATE_RUNNING);
  harness_->Disconnect("b");
  harness_->Connect("b");
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(harness_->Get(job).message(), HasSubstr("came back without the job"));
  EXPECT_EQ(harness_->Heard("a", Message::kAbort), 1);
}

TEST_F(JobManagerTest, WhatOthersSayOfALostWorkerNamesItsLoss) {
  const std::string job = JobIn(v1::JOB_STATE_RUNNING);
  harness_->Disconnect("b");
  v1::ConnectRequest failed;
  failed.mutable_failed()->set_job(job);
  failed.mutable_failed()->set_generation(1);
  failed.mutable_failed()->set_message("device 1 is gone");
  harness_->jobs->OnMessage("a", failed);
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(harness_->Get(job).message(), HasSubstr("worker b was lost"));
  EXPECT_THAT(harness_->Get(job).message(), HasSubstr("worker a: device 1 is gone"));
}

TEST_F(JobManagerTest, ARunningJobFailsIfAWorkerDoesNotComeBack) {
  const std::string job = JobIn(v1::JOB_STATE_RUNNING);
  Restart();
  harness_->Connect("a", {{job, 1}});
  harness_->registry.Heartbeat("a", harness_->Worker("a").session, absl::Now() + absl::Seconds(31));
  harness_->jobs->Tick(absl::Now() + absl::Seconds(31));
  const v1::Job failed = harness_->Get(job);
  EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(failed.message(), HasSubstr("did not come back"));
  EXPECT_THAT(failed.message(), HasSubstr(": b"));
  EXPECT_EQ(harness_->Heard("a", Message::kAbort), 1);
  ExpectNextJobSucceeds();
}

TEST_F(JobManagerTest, AJobThatHadNotStartedStartsAgainAfterARestart) {
  for (v1::JobState state : {v1::JOB_STATE_PENDING, v1::JOB_STATE_STARTING}) {
    SCOPED_TRACE(v1::JobState_Name(state));
    harness_ = std::make_unique<JobHarness>(&store_);
    const std::string job = JobIn(state);
    Restart();
    EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_PENDING);
    const bool prepared = state == v1::JOB_STATE_STARTING;
    if (prepared) {
      harness_->Connect("a", {{job, 1}});  // Its attempt is over.
      EXPECT_EQ(harness_->Heard("a", Message::kAbort), 1);
    } else {
      harness_->Connect("a");
    }
    harness_->Connect("b");
    const v1::Job ended = harness_->Await(job, v1::JOB_STATE_SUCCEEDED);
    EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.message();
    EXPECT_EQ(ended.generation(), prepared ? 2 : 1);
  }
}

TEST_F(JobManagerTest, AWorkerWithAnOldGenerationIsToldToStop) {
  ConnectBoth();
  const std::string job = harness_->Submit(SmallSpec());
  harness_->Await(job, v1::JOB_STATE_SUCCEEDED);
  harness_->Connect("c", {{job, 1}, {"jobs/99", 4}});
  EXPECT_EQ(harness_->Heard("c", Message::kAbort), 2);
}

TEST_F(JobManagerTest, SuspendedLossesDoNotFailAJob) {
  const std::string job = JobIn(v1::JOB_STATE_RUNNING);
  harness_->jobs->Suspend();
  harness_->Disconnect("a");
  harness_->Disconnect("b");
  EXPECT_EQ(store_.State(job), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(harness_->Heard("a", Message::kAbort), 0);
}

TEST_F(JobManagerTest, JobsQueueForDevicesInTheirOrder) {
  ConnectBoth();
  const std::string first = harness_->Submit(SmallSpec());
  const std::string second = harness_->Submit(SmallSpec());
  const std::string third = harness_->Submit(SmallSpec());
  EXPECT_EQ(harness_->Await(third, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
  std::vector<std::string> started;
  for (const auto& [job, state] : harness_->announced) {
    if (state == v1::JOB_STATE_RUNNING) started.push_back(job);
  }
  EXPECT_THAT(started, ElementsAre(first, second, third));
}

TEST_F(JobManagerTest, WaitsForAsManyDevicesAsItWants) {
  harness_->Connect("a");
  const std::string job = harness_->Submit(SmallSpec());
  EXPECT_EQ(harness_->Get(job).state(), v1::JOB_STATE_PENDING);
  EXPECT_THAT(harness_->Get(job).message(), HasSubstr("waits for 2 devices: 1 is connected"));
  const int64_t version = harness_->Get(job).version();
  harness_->jobs->Tick(absl::Now());
  EXPECT_EQ(harness_->Get(job).version(), version);  // Waiting is not a change.
  harness_->Connect("b");
  EXPECT_EQ(harness_->Await(job, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobManagerTest, AModelThatFitsNowhereFailsWithTheReason) {
  ConnectBoth();
  v1::JobSpec spec = SmallSpec();
  spec.mutable_plan_options()->set_num_stages(1000);
  const std::string job = harness_->Submit(spec);
  const v1::Job failed = harness_->Await(job, v1::JOB_STATE_FAILED);
  EXPECT_EQ(failed.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(failed.message(), Not(::testing::IsEmpty()));
  EXPECT_EQ(harness_->Heard("a", Message::kPrepare), 0);
  ExpectNextJobSucceeds();
}

TEST_F(JobManagerTest, ListsNewestFirstInPages) {
  for (int i = 0; i < 5; ++i) harness_->Submit(SmallSpec());
  std::vector<std::string> names;
  std::string token;
  do {
    const std::vector<v1::Job> page = harness_->List(2, &token);
    ASSERT_LE(page.size(), 2u);
    for (const v1::Job& job : page) {
      names.push_back(job.name());
      EXPECT_FALSE(job.spec().has_graph());
    }
  } while (!token.empty());
  EXPECT_THAT(names, ElementsAre("jobs/5", "jobs/4", "jobs/3", "jobs/2", "jobs/1"));
  v1::ListJobsRequest wrong;
  wrong.set_page_size(-1);
  EXPECT_EQ(harness_->jobs->List(wrong).status().code(), absl::StatusCode::kInvalidArgument);
  wrong.set_page_size(2);
  const std::string second = harness_->jobs->List(wrong)->next_page_token();
  wrong.set_page_token(second);
  EXPECT_EQ(harness_->jobs->List(wrong)->jobs(0).name(), "jobs/3");
  wrong.set_owner("ada");
  EXPECT_EQ(DetailsOf(harness_->jobs->List(wrong).status()).field, "page_token");
}

TEST_F(JobManagerTest, TellsProgramsWhichFieldIsWrong) {
  v1::ReplanJobRequest replan;
  replan.set_time_limit_ns(-1);
  harness_->jobs->Replan(replan, [](const auto& result) {
    EXPECT_EQ(DetailsOf(result.status()).field, "time_limit_ns");
  });
  EXPECT_EQ(DetailsOf(harness_->jobs->SetAvailability({}).status()).field, "availability");
  EXPECT_EQ(DetailsOf(harness_->jobs->Steps("jobs/1", -1).status()).field, "after_step");
  const auto unseen = harness_->jobs->Watch(
      "jobs/1", [](const auto& /*job*/) {}, -1);
  EXPECT_EQ(DetailsOf(unseen.status()).field, "after_version");
  v1::ListJobsRequest list;
  list.add_states(v1::JOB_STATE_RUNNING);
  for (const int state : {0, 77}) {
    list.mutable_states()->Add(state);
    EXPECT_EQ(DetailsOf(harness_->jobs->List(list).status()).field, "states[1]") << state;
    list.mutable_states()->RemoveLast();
  }
}

TEST_F(JobManagerTest, WatchersSeeNewerVersionsInOrderUntilTheyLeave) {
  ConnectBoth();
  const std::string job = harness_->Submit(SmallSpec());
  absl::Mutex mutex;
  std::vector<int64_t> versions;
  v1::JobState last = v1::JOB_STATE_UNSPECIFIED;
  auto watch = harness_->jobs->Watch(job, [&](std::shared_ptr<const v1::Job> seen) {
    absl::MutexLock lock(&mutex);
    versions.push_back(seen->version());
    last = seen->state();
    EXPECT_FALSE(seen->spec().has_graph());
  });
  ASSERT_TRUE(watch.ok());
  std::atomic<int> calls_of_other{0};
  auto other = harness_->jobs->Watch(job, [&](const auto&) { ++calls_of_other; });
  harness_->jobs->Unwatch(*other);
  const int calls_at_leaving = calls_of_other;
  harness_->Await(job, v1::JOB_STATE_SUCCEEDED);
  {
    absl::MutexLock lock(&mutex);
    mutex.AwaitWithTimeout(
        absl::Condition(
            +[](v1::JobState* state) { return *state == v1::JOB_STATE_SUCCEEDED; }, &last),
        absl::Seconds(20));
  }
  harness_->jobs->Unwatch(*watch);
  EXPECT_EQ(harness_->jobs->watchers(), 0);
  EXPECT_EQ(last, v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(std::is_sorted(versions.begin(), versions.end()));
  EXPECT_EQ(std::adjacent_find(versions.begin(), versions.end()), versions.end());
  EXPECT_EQ(calls_of_other, calls_at_leaving);
  EXPECT_EQ(harness_->jobs->Watch("jobs/9", [](const auto&) {}).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace stagewright
