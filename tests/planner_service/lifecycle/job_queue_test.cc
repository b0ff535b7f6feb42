// Who gets devices when: priorities, quotas, and jobs that are stopped for others.
#include "planner_service/lifecycle/job_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::JobHarness;
using testing::RecordingStore;
using testing::SmallSpec;
using Message = v1::ConnectResponse;

constexpr int64_t kLong = 100'000;

class JobQueueTest : public ::testing::Test {
 protected:
  void Restart(JobManagerOptions options = {}) {
    harness_->jobs->Suspend();
    harness_ = std::make_unique<JobHarness>(&store_, std::move(options));
  }
  // Workers whose jobs run on until they are told otherwise.
  void Connect(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      harness_->Connect(name);
      Busy(name, true);
    }
  }
  void Busy(const std::string& name, bool busy) {
    harness_->Worker(name).silent_on.clear();
    if (busy) harness_->Worker(name).silent_on = {Message::kStart};
    harness_->Worker(name).total_steps = busy ? kLong : 3;
  }
  void Set(const std::vector<std::string>& workers, v1::WorkerAvailability availability) {
    v1::SetWorkerAvailabilityRequest request;
    request.set_availability(availability);
    for (const std::string& worker : workers) {
      request.set_name(worker);
      EXPECT_TRUE(harness_->jobs->SetAvailability(request).ok());
    }
  }
  // So much later, when those that are connected have sent heartbeats.
  void Pass(absl::Duration time) { harness_->PassUntil(absl::Now() + time); }
  // It has a stage on each device.
  std::string Submit(int32_t priority, int32_t devices = 2, const std::string& owner = "",
                     bool preemptible = false) {
    v1::JobSpec spec = SmallSpec();
    spec.set_num_devices(devices);
    spec.mutable_plan_options()->set_num_stages(devices);
    spec.set_priority(priority);
    spec.set_preemptible(preemptible);
    spec.set_owner(owner);
    return harness_->Submit(spec);
  }
  v1::Job Get(const std::string& job) const { return harness_->Get(job); }
  std::string Running(int32_t priority, int32_t devices = 2, const std::string& owner = "",
                      bool preemptible = false) {
    std::string job = Submit(priority, devices, owner, preemptible);
    const v1::Job running = harness_->Await(job, v1::JOB_STATE_RUNNING);
    EXPECT_EQ(running.state(), v1::JOB_STATE_RUNNING) << running.message();
    harness_->Pump();
    return job;
  }

  // Calls `say` with every device of the job and its worker.
  template <typename Say>
  void ForDevices(const std::string& name, Say say) {
    const v1::Job job = Get(name);
    for (const v1::DeviceProgram& device : job.plan().program().devices()) {
      const std::string& qualified = job.devices(device.device());
      say(qualified.substr(0, qualified.find('/')), device.device(), job.generation());
    }
  }
  void Step(const std::string& job, int64_t step) {
    ForDevices(job, [&](const std::string& worker, int32_t device, int64_t generation) {
      v1::ConnectRequest message;
      v1::Progress* progress = message.mutable_progress();
      progress->set_job(job);
      progress->set_generation(generation);
      progress->set_step(step);
      progress->add_devices()->set_device(device);
      progress->mutable_devices(0)->set_step_ns(500'000'000);
      harness_->jobs->OnMessage(worker, message);
    });
  }
  void WriteShares(const std::string& job, int64_t step, const std::string& error = "") {
    ForDevices(job, [&](const std::string& worker, int32_t device, int64_t generation) {
      v1::ConnectRequest message;
      v1::ShardWritten* written = message.mutable_shard_written();
      written->set_job(job);
      written->set_generation(generation);
      written->set_step(step);
      written->set_device(device);
      written->set_error(error);
      harness_->jobs->OnMessage(worker, message);
    });
  }
  void WriteManifest(const std::string& job, const std::string& worker, int64_t step) {
    v1::ConnectRequest message;
    message.mutable_checkpoint_written()->set_job(job);
    message.mutable_checkpoint_written()->set_generation(Get(job).generation());
    message.mutable_checkpoint_written()->set_step(step);
    message.mutable_checkpoint_written()->set_path(absl::StrCat("out/checkpoints/step-", step));
    harness_->jobs->OnMessage(worker, message);
  }
  // The newest message of a kind that `worker` heard.
  std::optional<Message> Newest(const std::string& worker, Message::MessageCase kind) {
    std::optional<Message> newest;
    for (const Message& message : harness_->Worker(worker).heard) {
      if (message.message_case() == kind) newest = message;
    }
    return newest;
  }
  // The step after which the job on `worker` was told to stop; 0: it was not.
  int64_t StopsAfter(const std::string& worker) {
    const auto asked = Newest(worker, Message::kCheckpointAfter);
    return asked.has_value() && asked->checkpoint_after().hold() ? asked->checkpoint_after().step()
                                                                 : 0;
  }
  // A job that runs and leaves a device, after a checkpoint, to one of a higher priority; the names
  // of both.
  std::pair<std::string, std::string> Preempt(v1::JobSpec spec) {
    spec.set_preemptible(true);
    const std::string low = harness_->Submit(spec);
    EXPECT_EQ(harness_->Await(low, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
    harness_->Pump();
    for (int64_t step = 1; step <= 4; ++step) Step(low, step);
    const std::string high = Submit(3, 1);
    const int64_t step = StopsAfter("a");
    WriteShares(low, step);
    WriteManifest(low, "a", step);
    return {low, high};
  }

  RecordingStore store_;
  std::unique_ptr<JobHarness> harness_ = std::make_unique<JobHarness>(&store_);
};

TEST_F(JobQueueTest, HigherPriorityGoesFirst) {
  const std::string low = Submit(-5), first = Submit(0), high = Submit(7), second = Submit(0);
  EXPECT_EQ(Get(high).queue_position(), 1);
  EXPECT_EQ(Get(low).queue_position(), 4);
  for (const char* name : {"a", "b"}) harness_->Connect(name);
  EXPECT_EQ(harness_->Await(low, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
  std::vector<std::string> started;
  for (const auto& [job, state] : harness_->announced) {
    if (state == v1::JOB_STATE_RUNNING) started.push_back(job);
  }
  EXPECT_THAT(started, ElementsAre(high, first, second, low));
  EXPECT_EQ(Get(high).queue_position(), 0);
}

TEST_F(JobQueueTest, AJobHoldsItsDevicesFromPlanningOn) {
  Connect({"a", "b", "c"});
  const std::string first = Submit(0), second = Submit(0);
  EXPECT_EQ(Get(first).state(), v1::JOB_STATE_PLANNING);
  EXPECT_EQ(Get(second).state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Get(second).message(), "waits for 2 free devices: 1 is free");
  // They are free again when the planning job is cancelled.
  ASSERT_TRUE(harness_->jobs->Cancel(first).ok());
  EXPECT_EQ(Get(second).state(), v1::JOB_STATE_PLANNING);
}

TEST_F(JobQueueTest, SaysWhyAJobWaitsAndWhatIsClosedToIt) {
  Connect({"a", "b", "c", "d"});
  ASSERT_TRUE(harness_->registry.SetAvailability("b", v1::WORKER_AVAILABILITY_CORDONED).ok());
  for (int i = 0; i < kFailuresToQuarantine; ++i)
    harness_->registry.NoteFailure("c/cpu0", "it died", absl::Now());
  const std::string large = Submit(0, 3);
  EXPECT_EQ(Get(large).message(),
            "waits for 3 devices: 2 are connected and open to jobs, 1 is cordoned, "
            "1 is in quarantine");
  const std::string running = Running(0, 1);
  const std::string two = Submit(10, 2), behind = Submit(0, 1);
  EXPECT_EQ(Get(two).message(),
            "waits for 2 free devices: 1 is free, 1 is cordoned, 1 is in quarantine");
  EXPECT_EQ(Get(behind).queue_position(), 3);
  EXPECT_EQ(Get(behind).message(), absl::StrCat("3rd in the queue behind ", two, " (priority 10)"));
}

TEST_F(JobQueueTest, AReasonIsToldWhenItChanges) {
  harness_->Connect("a");
  const std::string job = Submit(0);
  const v1::Job waiting = Get(job);
  EXPECT_THAT(waiting.message(), HasSubstr("waits for 2 devices"));
  harness_->jobs->Tick(absl::Now());
  EXPECT_EQ(Get(job).version(), waiting.version());
  const std::string first = Submit(1);  // It is told its new place.
  EXPECT_EQ(Get(job).queue_position(), 2);
  EXPECT_GT(Get(job).version(), waiting.version());
  EXPECT_EQ(Get(job).events_size(), waiting.events_size());
}

TEST_F(JobQueueTest, MembersOfATenantShareItsQuota) {
  JobManagerOptions options;
  options.quotas.quotas[Account::Of("", "vision")] = 3;
  Restart(options);
  Connect({"a", "b", "c", "d"});
  const auto submit = [&](const std::string& owner, const std::string& tenant) {
    v1::JobSpec spec = SmallSpec();
    spec.set_num_devices(2);
    spec.mutable_plan_options()->set_num_stages(2);
    spec.set_owner(owner);
    spec.set_tenant(tenant);
    return harness_->Submit(spec);
  };
  const std::string first = submit("alice", "vision"), second = submit("bob", "vision");
  EXPECT_EQ(Get(second).message(), "quota of tenant vision: 3 devices, 2 in use, the job needs 2");
  const std::string other = submit("vision", "");
  EXPECT_EQ(harness_->Await(other, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Get(first).state(), v1::JOB_STATE_RUNNING);
}

TEST_F(JobQueueTest, AnOwnerGetsNoMoreThanItsQuota) {
  JobManagerOptions options;
  options.quotas.quotas[Account::Of("alice", "")] = 2;
  Restart(options);
  Connect({"a", "b", "c", "d"});
  Running(0, 2, "alice");
  const std::string over = Submit(5, 1, "alice"), other = Submit(0, 2, "bob");
  EXPECT_EQ(Get(over).message(), "quota of owner alice: 2 devices, 2 in use, the job needs 1");
  EXPECT_EQ(harness_->Await(other, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Get(over).state(), v1::JOB_STATE_PENDING);
}

TEST_F(JobQueueTest, OwnersOfOnePriorityTakeTurns) {
  Connect({"a", "b"});
  Running(0, 1, "alice");
  const std::string blocker = Running(0, 1, "bob");
  const std::string alices = Submit(0, 1, "alice"), carols = Submit(0, 1, "carol");
  EXPECT_EQ(Get(carols).queue_position(), 1);
  EXPECT_EQ(Get(alices).queue_position(), 2);
  ASSERT_TRUE(harness_->jobs->Cancel(blocker).ok());
  EXPECT_EQ(harness_->Await(carols, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
}

TEST_F(JobQueueTest, OwnersTakeTurnsAtPlanning) {
  Connect({"a", "b", "c", "d"});
  absl::Notification go;
  harness_->HoldPlanning(go);
  std::vector<std::string> jobs;
  for (const char* owner : {"eve", "eve", "eve", "ada"}) jobs.push_back(Submit(0, 1, owner));
  go.Notify();
  for (const std::string& job : jobs)
    EXPECT_EQ(harness_->Await(job, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  std::vector<std::string> planned;
  for (const auto& [job, state] : harness_->announced)
    if (state == v1::JOB_STATE_STARTING) planned.push_back(job);
  EXPECT_THAT(planned, ElementsAre(jobs[0], jobs[3], jobs[1], jobs[2]));
}

TEST_F(JobQueueTest, APreemptedJobGoesOnFromWhereItStopped) {
  Connect({"a", "b"});
  const std::string low = Running(0, 2, "", /*preemptible=*/true);
  for (int64_t step = 1; step <= 4; ++step) Step(low, step);
  const std::string high = Submit(3);
  const int64_t step = StopsAfter("a");
  ASSERT_GT(step, 4);
  EXPECT_EQ(StopsAfter("b"), step);
  EXPECT_EQ(Get(low).message(), absl::StrCat("saves its state after step ", step,
                                             ", to make room for ", high, " (priority 3)"));
  EXPECT_EQ(Get(high).message(),
            absl::StrCat("waits for ", low, " to save its state and make room"));
  harness_->jobs->Tick(absl::Now());  // It is asked once.
  EXPECT_EQ(harness_->Heard("a", Message::kCheckpointAfter), 1);
  for (const char* worker : {"a", "b"}) Busy(worker, false);
  WriteShares(low, step);
  WriteManifest(low, "a", step);
  const v1::Job stopped = Get(low);
  EXPECT_EQ(stopped.state(), v1::JOB_STATE_PENDING);
  EXPECT_TRUE(stopped.preempted());
  EXPECT_EQ(stopped.preemptions(), 1);
  EXPECT_EQ(stopped.restarts(), 0);
  EXPECT_THAT(stopped.message(), HasSubstr(absl::StrCat("preempted after step ", step, " for ",
                                                        high, " (priority 3)")));
  EXPECT_EQ(store_.State(low), v1::JOB_STATE_PENDING);

  EXPECT_EQ(harness_->Await(high, v1::JOB_STATE_SUCCEEDED).state(), v1::JOB_STATE_SUCCEEDED);
  for (const char* worker : {"a", "b"}) Busy(worker, true);
  const v1::Job again = harness_->Await(low, v1::JOB_STATE_RUNNING);
  ASSERT_EQ(again.state(), v1::JOB_STATE_RUNNING) << again.message();
  EXPECT_FALSE(again.preempted());
  EXPECT_EQ(again.generation(), 2);
  const auto prepared = Newest("a", Message::kPrepare);
  EXPECT_EQ(prepared->prepare().spec().resume_path(), absl::StrCat("out/checkpoints/step-", step));
  EXPECT_FALSE(prepared->prepare().restart());
}

TEST_F(JobQueueTest, APreemptedJobWaitsForAllItsDevicesAlsoAfterARestart) {
  Connect({"a", "b"});
  // It would fit on one.
  v1::JobSpec spec = SmallSpec();
  spec.mutable_plan_options()->clear_num_stages();
  const auto [low, high] = Preempt(spec);
  EXPECT_EQ(harness_->Await(high, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  EXPECT_THAT(Get(low).message(), HasSubstr("; waits for 2 free devices: 1 is free"));
  Restart();
  EXPECT_TRUE(Get(low).preempted());
  EXPECT_EQ(Get(low).preemptions(), 1);
  Connect({"b"});
  harness_->jobs->Tick(absl::Now() + absl::Seconds(31));
  EXPECT_EQ(Get(low).state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Get(low).queue_position(), 1);
}

TEST_F(JobQueueTest, APreemptedJobThatDoesNotFitOnWhatIsFreeWaitsForMore) {
  // It takes whatever is free, but its two stages need two devices.
  Connect({"a", "b"});
  v1::JobSpec spec = SmallSpec();
  spec.set_num_devices(0);
  const auto [low, high] = Preempt(spec);
  ASSERT_EQ(harness_->Await(high, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  const v1::Job waits = harness_->Await(low, v1::JOB_STATE_PENDING);
  ASSERT_EQ(waits.state(), v1::JOB_STATE_PENDING) << waits.message();
  const absl::Time deadline = absl::Now() + testing::kPatience;
  while (!absl::StrContains(Get(low).message(), "waits for 2 free devices: 1 is free") &&
         absl::Now() < deadline)
    absl::SleepFor(absl::Milliseconds(1));
  EXPECT_THAT(Get(low).message(), HasSubstr("waits for 2 free devices: 1 is free"));
  ASSERT_TRUE(harness_->jobs->Cancel(high).ok());
  EXPECT_EQ(harness_->Await(low, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
}

TEST_F(JobQueueTest, APreemptedJobKnowsHowManyDevicesItHadWhateverItWasPlannedForSince) {
  Connect({"a", "b", "c", "d"});
  v1::JobSpec spec = SmallSpec();
  spec.set_num_devices(4);
  spec.set_planner("graphpipe");
  spec.mutable_plan_options()->clear_num_stages();
  spec.set_preemptible(true);
  const std::string low = harness_->Submit(spec);
  const auto stop = [&](const auto& why) {
    ASSERT_EQ(harness_->Await(low, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
    harness_->Pump();
    for (int64_t step = 1; step <= 4; ++step) Step(low, step);
    why();
    const int64_t step = StopsAfter("a");
    WriteShares(low, step);
    WriteManifest(low, "a", step);
  };
  // It goes on with two, and is then preempted.
  stop([&] { Set({"c", "d"}, v1::WORKER_AVAILABILITY_DRAINING); });
  std::string high;
  stop([&] { high = Submit(3, 1); });
  ASSERT_EQ(harness_->Await(high, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  ASSERT_TRUE(Get(low).preempted());
  EXPECT_EQ(Get(low).preempted_devices(), 2);
  // There are four again, but it cannot be planned for them.
  absl::Notification free;
  harness_->HoldPlanning(free);
  while (harness_->pool.Submit([] {}).ok()) {
  }
  EXPECT_TRUE(harness_->jobs->Cancel(high).ok());
  harness_->Pump();
  Set({"c", "d"}, v1::WORKER_AVAILABILITY_OPEN);
  EXPECT_EQ(Get(low).state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Get(low).devices_size(), 4);
  Set({"d"}, v1::WORKER_AVAILABILITY_CORDONED);
  free.Notify();
  while (harness_->pool.queued() > 0) absl::SleepFor(absl::Milliseconds(1));
  harness_->jobs->Tick(absl::Now());
  const v1::Job running = harness_->Await(low, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(running.state(), v1::JOB_STATE_RUNNING) << running.message();
  EXPECT_EQ(running.devices_size(), 3);
  EXPECT_EQ(running.preempted_devices(), 0);
}

TEST_F(JobQueueTest, ACancelledJobIsPreemptedNoMore) {
  Connect({"a", "b"});
  const std::string low = Running(0, 2, "", /*preemptible=*/true);
  for (int64_t step = 1; step <= 4; ++step) Step(low, step);
  Submit(3);
  WriteShares(low, StopsAfter("a"));
  WriteManifest(low, "a", StopsAfter("a"));
  ASSERT_TRUE(Get(low).preempted());
  ASSERT_TRUE(harness_->jobs->Cancel(low).ok());
  EXPECT_FALSE(Get(low).preempted());
  EXPECT_EQ(Get(low).queue_position(), 0);
}

TEST_F(JobQueueTest, AfterARestartWorkersThatComeBackAreKeptForWhomTheyWereKeptBefore) {
  const std::string low = Submit(0, 2), high = Submit(3, 4);
  Restart();
  for (const char* worker : {"a", "b", "c", "d"}) {
    EXPECT_EQ(Get(low).state(), v1::JOB_STATE_PENDING) << worker;
    Connect({worker});
    EXPECT_LE(Get(high).queue_position(), 1);
  }
  EXPECT_EQ(harness_->Await(high, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Get(low).state(), v1::JOB_STATE_PENDING);
}

TEST_F(JobQueueTest, WorkersThatDoNotComeBackAreKeptForNobody) {
  const std::string low = Submit(0, 2);
  Submit(3, 4);
  Restart();
  Connect({"a", "b"});
  EXPECT_EQ(Get(low).state(), v1::JOB_STATE_PENDING);
  Pass(absl::Seconds(31));
  EXPECT_EQ(Get(low).state(), v1::JOB_STATE_PLANNING);
}

TEST_F(JobQueueTest, AJobThatTakesAllDevicesWaitsAfterARestartForThoseThatComeBack) {
  const std::string job = Submit(0, /*devices=*/0);
  Restart();
  Connect({"a"});
  EXPECT_EQ(Get(job).state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Get(job).message(), "the planner was restarted");
  Connect({"b"});
  Pass(absl::Seconds(31));
  const v1::Job running = harness_->Await(job, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(running.state(), v1::JOB_STATE_RUNNING) << running.message();
  EXPECT_EQ(running.devices_size(), 2);
  // One that comes now takes what there is.
  ASSERT_TRUE(harness_->jobs->Cancel(job).ok());
  harness_->Pump();
  EXPECT_EQ(Get(Submit(0, /*devices=*/0)).state(), v1::JOB_STATE_PLANNING);
}

TEST_F(JobQueueTest, AJobThatPausesBeforeItGoesOnKeepsItsPlace) {
  Connect({"a", "b"});
  const std::string high = Running(3, 2, "", /*preemptible=*/true);
  for (int64_t step = 1; step <= 4; ++step) Step(high, step);
  const std::string highest = Submit(5, 2);
  WriteShares(high, StopsAfter("a"));
  WriteManifest(high, "a", StopsAfter("a"));
  ASSERT_TRUE(harness_->jobs->Cancel(highest).ok());
  ASSERT_TRUE(Get(high).preempted());
  Restart();
  const std::string low = Submit(0, 1);
  Connect({"a", "b"});
  EXPECT_EQ(Get(high).message(), "the planner was restarted");
  EXPECT_EQ(Get(high).queue_position(), 1);
  EXPECT_EQ(Get(low).state(), v1::JOB_STATE_PENDING);
  EXPECT_THAT(Get(low).message(), HasSubstr(absl::StrCat("behind ", high)));
  Pass(absl::Seconds(31));
  EXPECT_EQ(Get(high).state(), v1::JOB_STATE_PLANNING);
}

TEST_F(JobQueueTest, AJobThatIsNotPreemptibleRunsOn) {
  Connect({"a", "b"});
  const std::string low = Running(0, 2);
  for (int64_t step = 1; step <= 4; ++step) Step(low, step);
  const std::string high = Submit(3);
  EXPECT_EQ(StopsAfter("a"), 0);
  EXPECT_EQ(Get(high).message(), "waits for 2 free devices: 0 are free");
}

TEST_F(JobQueueTest, AJobGoesOnWhenNobodyNeedsItsRoomAnyMore) {
  Connect({"a", "b"});
  const std::string low = Running(0, 2, "", /*preemptible=*/true);
  for (int64_t step = 1; step <= 4; ++step) Step(low, step);
  const std::string high = Submit(3);
  ASSERT_GT(StopsAfter("a"), 0);
  ASSERT_TRUE(harness_->jobs->Cancel(high).ok());
  EXPECT_EQ(harness_->Heard("a", Message::kGoOn), 1);
  EXPECT_EQ(harness_->Heard("b", Message::kGoOn), 1);
  WriteShares(low, StopsAfter("a"));
  WriteManifest(low, "a", StopsAfter("a"));
  EXPECT_EQ(Get(low).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Get(low).message(), "");
  EXPECT_EQ(Get(low).preemptions(), 0);
}

TEST_F(JobQueueTest, AJobThatEndsBeforeItCouldMakeRoomGivesNobodyAnotherPlace) {
  Connect({"a", "b", "c"});
  for (const char* worker : {"a", "b"}) harness_->Worker(worker).total_steps = 6;
  const std::string low = Running(0, 2, "", /*preemptible=*/true);
  Running(0, 1, "alice");
  for (int64_t step = 1; step <= 5; ++step) Step(low, step);
  const std::string first = Submit(3, 2, "alice");
  EXPECT_EQ(StopsAfter("a"), 0);
  // Whose jobs hold less goes before it, as if nobody had been asked.
  const std::string second = Submit(3, 2, "bob");
  EXPECT_EQ(Get(second).queue_position(), 1);
  EXPECT_EQ(Get(first).queue_position(), 2);
}

TEST_F(JobQueueTest, ACheckpointThatCannotBeWrittenPreemptsNobody) {
  Connect({"a", "b"});
  const std::string low = Running(0, 2, "", /*preemptible=*/true);
  for (int64_t step = 1; step <= 4; ++step) Step(low, step);
  const std::string high = Submit(3);
  WriteShares(low, StopsAfter("a"), "no space left");
  EXPECT_EQ(Get(low).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(harness_->Heard("b", Message::kGoOn), 1);
  EXPECT_THAT(Get(low).warnings(),
              ::testing::Contains(HasSubstr(absl::StrCat("it could not make room for ", high))));
  // It is asked again after a while.
  harness_->jobs->Tick(absl::Now());
  EXPECT_EQ(harness_->Heard("a", Message::kCheckpointAfter), 1);
  Pass(absl::Seconds(11));
  EXPECT_EQ(harness_->Heard("a", Message::kCheckpointAfter), 2);
}

}  // namespace
}  // namespace stagewright
