#include "planner_service/registry/worker_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <thread>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

v1::Register Registration(const std::string& worker, int devices) {
  v1::Register message;
  message.set_worker(worker);
  message.set_host_address("10.0.0.1");
  message.set_host_cores(4);
  message.set_threads_per_device(2);
  v1::DeviceKind* kind = message.add_kinds();
  kind->set_name("cpu");
  kind->set_flops_per_second(1e9);
  kind->set_memory_bytes_per_second(1e9);
  for (int i = 0; i < devices; ++i) {
    v1::Device* device = message.add_devices();
    device->set_name(absl::StrCat("cpu", i));
    device->set_memory_bytes(1 << 20);
  }
  return message;
}

bool Ignore(const v1::ConnectResponse&) { return true; }

class WorkerRegistryTest : public ::testing::Test {
 protected:
  int64_t Add(const std::string& worker, int devices = 1) {
    auto session = registry_.Register(Registration(worker, devices), Ignore, now_);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.value_or(-1);
  }
  std::vector<std::string> Names(bool free_only) const {
    std::vector<std::string> names;
    for (const RegisteredDevice& device : registry_.Devices(free_only))
      names.push_back(device.QualifiedName());
    return names;
  }

  WorkerRegistry registry_;
  const absl::Time now_ = absl::FromUnixSeconds(1'000'000);
};

TEST_F(WorkerRegistryTest, AWorkerOfAnotherVersionIsRefusedWhileOthersAreConnected) {
  v1::Register first = Registration("a", 1);
  first.set_version("1.2.0");
  const auto session = registry_.Register(first, Ignore, now_);
  ASSERT_TRUE(session.ok()) << session.status();
  v1::Register second = Registration("b", 1);
  second.set_version("1.3.0");
  const auto refused = registry_.Register(second, Ignore, now_);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("worker \"b\" is of version \"1.3.0\", but the connected worker \"a\" is "
                        "of version \"1.2.0\""));
  EXPECT_THAT(Names(false), ElementsAre("a/cpu0"));  // As it was.
  // Nobody is left to disagree with.
  ASSERT_TRUE(registry_.Unregister("a", *session));
  EXPECT_TRUE(registry_.Register(second, Ignore, now_).ok());
}

TEST_F(WorkerRegistryTest, DevicesComeByWorkerAndIndexWithWhatWasRegistered) {
  Add("b", 1);
  Add("a", 2);
  EXPECT_THAT(Names(false), ElementsAre("a/cpu0", "a/cpu1", "b/cpu0"));
  const RegisteredDevice device = registry_.Devices(false)[1];
  EXPECT_EQ(device.index, 1);
  EXPECT_EQ(device.kind.name(), "cpu");
  EXPECT_EQ(device.host_address, "10.0.0.1");
  EXPECT_EQ(device.host_cores, 4);
  EXPECT_EQ(device.threads, 2);
  ASSERT_EQ(registry_.List().size(), 2u);
  EXPECT_EQ(registry_.List()[0].name(), "a");
  EXPECT_EQ(registry_.List()[0].devices_size(), 2);
  EXPECT_EQ(registry_.List()[0].last_heartbeat_time().seconds(), 1'000'000);
}

TEST_F(WorkerRegistryTest, ShowsWhatAWorkerToldOfItsGpus) {
  v1::Register with_gpu = Registration("a", 1);
  with_gpu.mutable_gpu_machine()->set_driver_version("580.82.07");
  ASSERT_TRUE(registry_.Register(with_gpu, Ignore, now_).ok());
  Add("b");
  EXPECT_EQ(registry_.List()[0].gpu_machine().driver_version(), "580.82.07");
  EXPECT_FALSE(registry_.List()[1].has_gpu_machine());
}

TEST_F(WorkerRegistryTest, SecondWorkerOfANameIsRefusedWhileTheFirstLives) {
  const int64_t first = Add("a");
  const auto second = registry_.Register(Registration("a", 1), Ignore, now_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("\"a\""));
  EXPECT_TRUE(registry_.Unregister("a", first));
  EXPECT_NE(Add("a"), first);
}

TEST_F(WorkerRegistryTest, WhatAnOlderSessionSaysHasNoEffect) {
  const int64_t old = Add("a");
  ASSERT_TRUE(registry_.Unregister("a", old));
  const int64_t present = Add("a");
  EXPECT_FALSE(registry_.Heartbeat("a", old, now_ + absl::Seconds(100)));
  EXPECT_THAT(registry_.Silent(now_ + absl::Seconds(1)), ElementsAre(Pair("a", present)));
  EXPECT_FALSE(registry_.Unregister("a", old));
  EXPECT_TRUE(registry_.Connected("a"));
}

TEST_F(WorkerRegistryTest, HeartbeatsKeepAWorkerFromBeingSilent) {
  const int64_t a = Add("a");
  const int64_t b = Add("b");
  EXPECT_THAT(registry_.Silent(now_), IsEmpty());
  EXPECT_TRUE(registry_.Heartbeat("a", a, now_ + absl::Seconds(5)));
  EXPECT_THAT(registry_.Silent(now_ + absl::Seconds(3)), ElementsAre(Pair("b", b)));
  EXPECT_FALSE(registry_.Heartbeat("nobody", 1, now_));
}

TEST_F(WorkerRegistryTest, WhoIsHeardOfAfterItWasFoundSilentStays) {
  const int64_t a = Add("a"), b = Add("b");
  const absl::Time deadline = now_ + absl::Seconds(3);
  ASSERT_THAT(registry_.Silent(deadline), ElementsAre(Pair("a", a), Pair("b", b)));
  EXPECT_TRUE(registry_.Heartbeat("a", a, now_ + absl::Seconds(5)));
  EXPECT_FALSE(registry_.UnregisterSilent("a", a, deadline));
  EXPECT_TRUE(registry_.Connected("a"));
  EXPECT_FALSE(registry_.UnregisterSilent("b", b + 1, deadline)) << "another session";
  EXPECT_TRUE(registry_.UnregisterSilent("b", b, deadline));
  EXPECT_FALSE(registry_.Connected("b"));
}

TEST_F(WorkerRegistryTest, AllocationIsAllOrNothing) {
  Add("a", 2);
  Add("b", 1);
  ASSERT_TRUE(registry_.Allocate("jobs/1", {"b/cpu0"}).ok());
  const absl::Status held = registry_.Allocate("jobs/2", {"a/cpu0", "b/cpu0", "a/cpu1"});
  EXPECT_EQ(held.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(held.message()), HasSubstr("b/cpu0 is held by jobs/1"));
  EXPECT_THAT(Names(true), ElementsAre("a/cpu0", "a/cpu1"));
  for (const char* gone : {"c/cpu0", "a/cpu9", "a", ""}) {
    const absl::Status status = registry_.Allocate("jobs/2", {"a/cpu0", gone});
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("device ", gone)));
  }
  EXPECT_THAT(Names(true), ElementsAre("a/cpu0", "a/cpu1"));
  // The holder may ask again; releasing frees all that the job holds.
  EXPECT_TRUE(registry_.Allocate("jobs/1", {"b/cpu0", "a/cpu0"}).ok());
  registry_.Release("jobs/1", /*keep=*/{"b/cpu0"});
  EXPECT_THAT(Names(true), ElementsAre("a/cpu0", "a/cpu1"));
  registry_.Release("jobs/1");
  EXPECT_THAT(Names(true), ElementsAre("a/cpu0", "a/cpu1", "b/cpu0"));
}

TEST_F(WorkerRegistryTest, DevicesOfAWorkerThatLeavesAreGone) {
  const int64_t session = Add("a", 2);
  ASSERT_TRUE(registry_.Allocate("jobs/1", {"a/cpu0"}).ok());
  ASSERT_TRUE(registry_.Unregister("a", session));
  EXPECT_THAT(Names(false), IsEmpty());
  Add("a", 2);
  EXPECT_THAT(Names(true), ElementsAre("a/cpu0", "a/cpu1"));
}

TEST_F(WorkerRegistryTest, SendGoesDownTheWorkersOwnStream) {
  std::vector<std::string> heard;
  ASSERT_TRUE(registry_
                  .Register(
                      Registration("a", 1),
                      [&](const v1::ConnectResponse& message) {
                        heard.push_back(message.start().job());
                        return true;
                      },
                      now_)
                  .ok());
  ASSERT_TRUE(registry_
                  .Register(
                      Registration("closed", 1), [](const auto&) { return false; }, now_)
                  .ok());
  v1::ConnectResponse start;
  start.mutable_start()->set_job("jobs/3");
  EXPECT_TRUE(registry_.Send("a", start));
  EXPECT_FALSE(registry_.Send("closed", start));
  EXPECT_FALSE(registry_.Send("nobody", start));
  EXPECT_THAT(heard, ElementsAre("jobs/3"));
}

struct BadField {
  const char* message;
  void (*spoil)(v1::Register&);
};

TEST_F(WorkerRegistryTest, NamesTheWorkersThatHaveNotEndedRunsOfEachJob) {
  Add("a", 2);
  Add("b", 2);
  ASSERT_TRUE(registry_.Allocate("jobs/1", {"a/cpu0", "a/cpu1", "b/cpu0"}).ok());
  ASSERT_TRUE(registry_.Allocate("jobs/2", {"b/cpu1"}).ok());
  EXPECT_THAT(registry_.Ending(), IsEmpty());
  registry_.EndRun("jobs/1", 1, {"a/cpu0", "a/cpu1", "b/cpu0"});
  registry_.EndRun("jobs/2", 1, {"b/cpu1"});
  EXPECT_THAT(registry_.Ending(),
              ElementsAre(Pair("jobs/1", ElementsAre("a", "b")), Pair("jobs/2", ElementsAre("b"))));
  EXPECT_THAT(registry_.Ending("jobs/2"), ElementsAre("b"));
  EXPECT_THAT(registry_.Ending("jobs/3"), IsEmpty());
}

TEST_F(WorkerRegistryTest, WhileThePlannerStoodStillNobodyWasSilentOrLate) {
  const int64_t a = Add("a"), b = Add("b");
  ASSERT_TRUE(registry_.Allocate("jobs/1", {"a/cpu0"}).ok());
  registry_.EndRun("jobs/1", 1, {"a/cpu0"});
  registry_.Tick(now_);
  const absl::Time after = now_ + absl::Minutes(1);
  EXPECT_TRUE(registry_.Heartbeat("b", b, after - absl::Seconds(1)));
  registry_.Forgive(absl::Minutes(1) - absl::Seconds(2), after);
  registry_.Tick(after);
  EXPECT_FALSE(registry_.Devices(/*free_only=*/false)[0].stuck);
  EXPECT_THAT(registry_.Silent(after - absl::Seconds(2)), IsEmpty());
  EXPECT_THAT(registry_.Silent(after), ElementsAre(Pair("a", a)));
  // Nobody was heard of in the future.
  EXPECT_THAT(registry_.Silent(after + absl::Seconds(1)), ElementsAre(Pair("a", a), Pair("b", b)));
  registry_.Tick(after + kRunsEndWithin);
  EXPECT_TRUE(registry_.Devices(/*free_only=*/false)[0].stuck);
}

TEST_F(WorkerRegistryTest, ADeviceIsStuckThatARunDoesNotLeaveInTime) {
  Add("a");
  const auto device = [&] { return registry_.Devices(/*free_only=*/false)[0]; };
  ASSERT_TRUE(registry_.Allocate("jobs/1", {"a/cpu0"}).ok());
  registry_.EndRun("jobs/1", 1, {"a/cpu0"});
  registry_.Tick(now_);
  registry_.Tick(now_ + kRunsEndWithin - absl::Seconds(1));
  EXPECT_TRUE(device().ending);
  EXPECT_FALSE(device().stuck);
  registry_.Tick(now_ + kRunsEndWithin);
  EXPECT_TRUE(device().stuck);
  EXPECT_THAT(Names(/*free_only=*/true), IsEmpty());
  registry_.Ended("a", "jobs/1", 1);
  EXPECT_FALSE(device().stuck);
  // The next run has as long.
  v1::RunningJob run;
  run.set_job("jobs/2");
  run.set_generation(1);
  run.add_device_names("cpu0");
  registry_.NoteEnding("a", run);
  registry_.Tick(now_ + absl::Hours(1));
  EXPECT_TRUE(device().ending);
  EXPECT_FALSE(device().stuck);
}

TEST_F(WorkerRegistryTest, BadFieldsAreNamed) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  static double bad_rate;
  bad_rate = nan;
  const BadField cases[] = {
      {"register.worker: a name must not be empty", [](v1::Register& m) { m.clear_worker(); }},
      {"must not contain '/'", [](v1::Register& m) { m.set_worker("a/b"); }},
      {"has no devices", [](v1::Register& m) { m.clear_devices(); }},
      {"the name is empty", [](v1::Register& m) { m.mutable_devices(1)->clear_name(); }},
      {"used twice", [](v1::Register& m) { m.mutable_devices(1)->set_name("cpu0"); }},
      {"device \"cpu1\".kind: 7", [](v1::Register& m) { m.mutable_devices(1)->set_kind(7); }},
      {"device \"cpu1\".kind: -1", [](v1::Register& m) { m.mutable_devices(1)->set_kind(-1); }},
      {".memory_bytes must be positive",
       [](v1::Register& m) { m.mutable_devices(0)->set_memory_bytes(0); }},
      {"kind \"cpu\".flops_per_second",
       [](v1::Register& m) { m.mutable_kinds(0)->set_flops_per_second(0); }},
      {"kind \"cpu\".memory_bytes_per_second",
       [](v1::Register& m) { m.mutable_kinds(0)->set_memory_bytes_per_second(bad_rate); }},
      {"kernel_overhead_ns",
       [](v1::Register& m) { m.mutable_kinds(0)->set_kernel_overhead_ns(-1); }},
      {"step_overhead_ns", [](v1::Register& m) { m.mutable_kinds(0)->set_step_overhead_ns(-1); }},
      {"half_efficiency_flops",
       [](v1::Register& m) { m.mutable_kinds(0)->set_half_efficiency_flops(bad_rate); }},
      {"kind \"cpu\".efficiency[0].points[0].share",
       [](v1::Register& m) {
         v1::EfficiencyPoint* point = m.mutable_kinds(0)->add_efficiency()->add_points();
         point->set_flops(1e9);
         point->set_share(1.1);
       }},
      {"host_cores", [](v1::Register& m) { m.set_host_cores(-1); }},
      {"threads_per_device", [](v1::Register& m) { m.set_threads_per_device(-1); }},
      {"GPU \"H200\".no_peer_access: 1",
       [](v1::Register& m) {
         v1::Gpu* gpu = m.mutable_gpu_machine()->add_gpus();
         gpu->set_name("H200");
         gpu->add_no_peer_access(1);
       }},
  };
  for (const BadField& bad : cases) {
    v1::Register message = Registration("w", 2);
    bad.spoil(message);
    const auto session = registry_.Register(message, Ignore, now_);
    EXPECT_EQ(session.status().code(), absl::StatusCode::kInvalidArgument) << bad.message;
    EXPECT_THAT(std::string(session.status().message()), HasSubstr(bad.message));
  }
  EXPECT_THAT(registry_.List(), IsEmpty());
}

// Threads that register, allocate and leave at once: no device is ever held twice.
TEST_F(WorkerRegistryTest, IsThreadSafe) {
  Add("shared", 2);
  std::atomic<int> holders{0};
  std::atomic<bool> twice{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string job = absl::StrCat("jobs/", t), worker = absl::StrCat("w", t);
      for (int i = 0; i < 200; ++i) {
        auto session = registry_.Register(Registration(worker, 1), Ignore, now_);
        if (registry_.Allocate(job, {"shared/cpu0", "shared/cpu1"}).ok()) {
          if (holders.fetch_add(1) != 0) twice = true;
          holders.fetch_sub(1);
          registry_.Release(job);
        }
        registry_.Unregister(worker, *session);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(twice);
  EXPECT_EQ(registry_.List().size(), 1u);
}

// What a worker has been told of its availability since it registered.
class WorkerAvailabilityTest : public WorkerRegistryTest {
 protected:
  void Connect(int64_t process, v1::WorkerAvailability says, bool leaving = false) {
    v1::Register message = Registration("a", 1);
    message.set_process(process);
    message.set_availability(says);
    message.set_leaving(leaving);
    told_.clear();
    const auto session = registry_.Register(
        message,
        [this](const v1::ConnectResponse& told) {
          told_.push_back(told.set_availability().availability());
          if (on_told_) on_told_();
          return true;
        },
        now_);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *session;
  }
  void Disconnect() { ASSERT_TRUE(registry_.Unregister("a", session_)); }
  v1::WorkerAvailability Now() const { return registry_.Get("a")->availability(); }

  std::vector<v1::WorkerAvailability> told_;
  std::function<void()> on_told_;
  int64_t session_ = 0;
};

TEST_F(WorkerAvailabilityTest, WhatItMissedHoldsForTheSameProcessAndIsToldAgain) {
  Connect(1, v1::WORKER_AVAILABILITY_OPEN);
  EXPECT_THAT(told_, IsEmpty());
  ASSERT_TRUE(registry_.SetAvailability("a", v1::WORKER_AVAILABILITY_CORDONED).ok());
  Disconnect();
  Connect(1, v1::WORKER_AVAILABILITY_OPEN);
  EXPECT_EQ(Now(), v1::WORKER_AVAILABILITY_CORDONED);
  EXPECT_THAT(told_, ElementsAre(v1::WORKER_AVAILABILITY_CORDONED));
  Disconnect();
  Connect(1, v1::WORKER_AVAILABILITY_CORDONED);
  EXPECT_THAT(told_, IsEmpty()) << "it knows";
  Disconnect();
  Connect(2, v1::WORKER_AVAILABILITY_OPEN);
  EXPECT_EQ(Now(), v1::WORKER_AVAILABILITY_OPEN) << "another process of the name";
  EXPECT_THAT(told_, IsEmpty());
}

TEST_F(WorkerAvailabilityTest, AnAcceptedWordIsAnsweredAlsoWhereTheStreamEndsWithIt) {
  Connect(1, v1::WORKER_AVAILABILITY_OPEN);
  on_told_ = [this] { Disconnect(); };
  const auto told = registry_.SetAvailability("a", v1::WORKER_AVAILABILITY_DRAINING);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->name(), "a");
  EXPECT_EQ(told->availability(), v1::WORKER_AVAILABILITY_DRAINING);
  EXPECT_FALSE(registry_.Get("a").ok());
}

TEST_F(WorkerAvailabilityTest, AWorkerThatIsLeavingIsOpenedNeitherAgainNorByAnOperator) {
  Connect(1, v1::WORKER_AVAILABILITY_OPEN);
  ASSERT_TRUE(registry_.SetAvailability("a", v1::WORKER_AVAILABILITY_OPEN).ok());
  Disconnect();
  Connect(1, v1::WORKER_AVAILABILITY_DRAINING, /*leaving=*/true);
  EXPECT_EQ(Now(), v1::WORKER_AVAILABILITY_DRAINING);
  EXPECT_THAT(told_, IsEmpty());
  for (const bool left : {false, true}) {
    if (left) {
      EXPECT_THAT(registry_.TakeIdleLeavers(), ElementsAre("a"));
    }
    for (const auto wanted : {v1::WORKER_AVAILABILITY_OPEN, v1::WORKER_AVAILABILITY_CORDONED}) {
      const absl::Status refused = registry_.SetAvailability("a", wanted).status();
      EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(refused.message()), HasSubstr("worker \"a\" is leaving"));
    }
    EXPECT_EQ(Now(), v1::WORKER_AVAILABILITY_DRAINING);
  }
}

}  // namespace
}  // namespace stagewright
