// Jobs whose plans name the devices that they run on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/error_details.h"
#include "planner_service/jobs/job_cluster.h"
#include "planner_service/wire/plan_basis.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobHarness;
using testing::RecordingStore;
using testing::SmallSpec;
using Message = v1::ConnectResponse;

// Does not say whether it has written profiles, and lets something happen while it reads.
class ProfilesInDoubt : public RecordingStore {
 public:
  absl::Status WriteIf(const std::vector<Condition>& conditions,
                       const std::vector<Mutation>& batch) override {
    if (!batch.empty() && absl::StartsWith(batch[0].key, "profiles/"))
      return absl::DeadlineExceededError("no answer");
    return RecordingStore::WriteIf(conditions, batch);
  }
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Scan(
      const std::string& prefix) const override {
    if (meanwhile) std::thread(std::exchange(meanwhile, nullptr)).join();
    return RecordingStore::Scan(prefix);
  }

  mutable std::function<void()> meanwhile;
};

class NamedDevicesLifeTest : public ::testing::Test {
 protected:
  // Workers whose jobs run on until they are told otherwise.
  void Connect(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      harness_.Connect(name);
      harness_.Worker(name).silent_on = {Message::kStart};
    }
  }
  // A plan of a stage on each of the devices.
  static v1::JobSpec Plan(const std::vector<std::string>& devices) {
    v1::JobSpec spec = SmallSpec();
    spec.set_num_devices(0);
    spec.clear_plan_options();
    spec.set_planner("manual");
    std::vector<std::string> stages;
    for (size_t i = 0; i < devices.size(); ++i) {
      const std::string nodes =
          i + 1 == devices.size() ? "*" : spec.graph().nodes(static_cast<int>(i)).name();
      stages.push_back(
          absl::StrCat(R"({"nodes": [")", nodes, R"("], "devices": [")", devices[i], R"("]})"));
    }
    spec.mutable_plan_options()->set_manual(
        absl::StrCat(R"({"micro_batch": 4, "stages": [)", absl::StrJoin(stages, ", "), "]}"));
    return spec;
  }
  // The same, found for a cluster.
  static v1::JobSpec Found(const std::vector<std::string>& devices,
                           const std::vector<std::string>& cluster) {
    v1::JobSpec spec = Plan(devices);
    for (const std::string& device : cluster) spec.mutable_plan_options()->add_found_for(device);
    return spec;
  }
  v1::Job Running(const v1::JobSpec& spec) {
    v1::Job job = harness_.Await(harness_.Submit(spec), v1::JOB_STATE_RUNNING);
    EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING) << job.message();
    harness_.Pump();
    return job;
  }

  RecordingStore store_;
  JobHarness harness_{&store_};
};

TEST_F(NamedDevicesLifeTest, AJobRunsOnThoseThatItsPlanNames) {
  Connect({"a", "b", "c", "d"});
  EXPECT_THAT(Running(Plan({"d/cpu0", "b/cpu0"})).devices(), ElementsAre("b/cpu0", "d/cpu0"));
  // Others leave them to jobs that name them as long as they can.
  const std::string waits = harness_.Submit(Plan({"a/cpu0", "b/cpu0"}));
  EXPECT_EQ(harness_.Get(waits).message(), "waits for b/cpu0, which jobs/1 uses");
  v1::JobSpec any = SmallSpec();
  any.set_num_devices(1);
  any.mutable_plan_options()->set_num_stages(1);
  EXPECT_THAT(Running(any).devices(), ElementsAre("c/cpu0"));
}

TEST_F(NamedDevicesLifeTest, AJobWaitsForThoseThatItsPlanNames) {
  Connect({"a", "b"});
  const v1::Job first = Running(Plan({"b/cpu0"}));
  const std::string second = harness_.Submit(Plan({"b/cpu0"}));
  EXPECT_EQ(harness_.Get(second).message(),
            absl::StrCat("waits for b/cpu0, which ", first.name(), " uses"));
  EXPECT_EQ(harness_.Get(second).state(), v1::JOB_STATE_PENDING);
  ASSERT_TRUE(harness_.jobs->Cancel(first.name()).ok());
  EXPECT_THAT(harness_.Await(second, v1::JOB_STATE_RUNNING).devices(), ElementsAre("b/cpu0"));
}

TEST_F(NamedDevicesLifeTest, AJobThatLostOneWaitsForIt) {
  Connect({"a", "b"});
  v1::JobSpec spec = Plan({"b/cpu0"});
  spec.set_max_restarts(1);
  const std::string job = Running(spec).name();
  harness_.Disconnect("b");
  harness_.PassUntil(absl::Now() + absl::Minutes(2));
  EXPECT_THAT(harness_.Get(job).message(), HasSubstr("waits for b/cpu0, which is not connected"));
  Connect({"b"});
  harness_.PassUntil(absl::Now() + absl::Minutes(4));
  EXPECT_THAT(harness_.Await(job, v1::JOB_STATE_RUNNING).devices(), ElementsAre("b/cpu0"));
}

TEST_F(NamedDevicesLifeTest, OneThatNoWorkerHasIsRefusedAtOnce) {
  Connect({"a"});
  const v1::JobSpec spec = Plan({"a/cpu0", "z/cpu0"});
  for (const absl::Status& refused :
       {harness_.jobs->Submit(spec, "").status(), harness_.jobs->Validate(spec, "")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(refused));
    EXPECT_EQ(
        refused.message(),
        "spec.plan_options.manual names the device \"z/cpu0\", which no connected worker has; 1 "
        "device is connected: start workers, or plan for what is there");
  }
  v1::JobSpec one = Plan({"a/cpu0"});
  one.set_num_devices(2);
  EXPECT_EQ(harness_.jobs->Submit(one, "").status().message(),
            "spec.num_devices is 2, but the plan is for 1 device");
}

TEST_F(NamedDevicesLifeTest, AFoundPlanRunsOnTheFirstThatAreFreeWhereNoneOfItsOwnIsThere) {
  Connect({"a", "b", "c"});
  EXPECT_THAT(Running(Plan({"b/cpu0"})).devices(), ElementsAre("b/cpu0"));
  const std::vector<std::string> cluster = {"node0/device0", "node0/device1", "node1/device0"};
  const v1::JobSpec spec = Found({"node1/device0", "node0/device1"}, cluster);
  EXPECT_EQ(harness_.jobs->Validate(spec, ""), absl::OkStatus());
  const v1::Job job = Running(spec);
  EXPECT_THAT(job.devices(), ElementsAre("a/cpu0", "c/cpu0"));
  EXPECT_THAT(job.plan().strategy().stages(0).devices(), ElementsAre(1));
  EXPECT_THAT(job.plan().strategy().stages(1).devices(), ElementsAre(0));
  // What was asked for once is answered by that, whoever comes and goes.
  Connect({"d"});
  const std::string waits = harness_.Submit(spec, "once");
  EXPECT_EQ(harness_.Get(waits).state(), v1::JOB_STATE_PENDING);
  v1::JobSpec again = spec;
  again.set_output_path(harness_.Get(waits).spec().output_path());
  for (const char* worker : {"a", "b", "c", "d"}) harness_.Disconnect(worker);
  const auto known = harness_.jobs->Submit(again, "once");
  ASSERT_TRUE(known.ok()) << known.status();
  EXPECT_EQ(known->name(), waits);
}

TEST_F(NamedDevicesLifeTest, AFoundPlanRunsOnItsOwnDevicesWhereOneOfThemIsThere) {
  Connect({"a", "b", "c"});
  const v1::JobSpec own = Found({"b/cpu0", "c/cpu0"}, {"b/cpu0", "c/cpu0"});
  EXPECT_THAT(Running(own).devices(), ElementsAre("b/cpu0", "c/cpu0"));
  const v1::JobSpec half = Found({"b/cpu0", "z/cpu0"}, {"b/cpu0", "z/cpu0"});
  EXPECT_EQ(
      harness_.jobs->Validate(half, "").message(),
      "spec.plan_options.manual names the device \"z/cpu0\", which no connected worker has; 3 "
      "devices are connected: start workers, or plan for what is there");
  v1::JobSpec more = own;
  more.set_num_devices(3);
  EXPECT_EQ(harness_.jobs->Validate(more, "").message(),
            "spec.num_devices is 3, but the plan is for 2 devices");
}

TEST_F(NamedDevicesLifeTest, AFoundPlanForMoreDevicesThanAreThereIsRefused) {
  Connect({"a"});
  const std::vector<std::string> cluster = {"node0/device0", "node1/device0"};
  const absl::Status refused = harness_.jobs->Submit(Found(cluster, cluster), "").status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_EQ(
      refused.message(),
      "spec.plan_options.manual names the devices \"node0/device0\", \"node1/device0\", which "
      "no connected worker has; 1 device is connected, too few for the plan's 2: start workers, or "
      "plan for what is there");
  EXPECT_EQ(DetailsOf(refused).field, "spec.plan_options.manual");
  Connect({"b"});
  v1::JobSpec spec = Found(cluster, cluster);
  spec.set_num_devices(1);
  EXPECT_EQ(harness_.jobs->Validate(spec, "").message(),
            "spec.num_devices is 1, but the plan is for 2 devices");
  spec.set_num_devices(3);  // It waits for them.
  EXPECT_EQ(harness_.jobs->Validate(spec, ""), absl::OkStatus());
}

TEST_F(NamedDevicesLifeTest, AFoundStrategyRunsOnAsManyDevicesAsItNeeds) {
  Connect({"a", "b", "c"});
  const v1::Job planned = Running(Plan({"a/cpu0", "b/cpu0"}));
  ASSERT_TRUE(harness_.jobs->Cancel(planned.name()).ok());
  harness_.Pump();
  v1::JobSpec spec = SmallSpec();
  spec.set_num_devices(0);
  spec.clear_plan_options();
  *spec.mutable_strategy() = planned.plan().strategy();
  spec.mutable_strategy()->mutable_stages(0)->set_devices(0, 7);
  spec.mutable_strategy()->mutable_stages(1)->set_devices(0, 4);
  for (const char* device : {"node0/device4", "node1/device1"})
    spec.mutable_plan_options()->add_found_for(device);
  const v1::Job job = Running(spec);
  EXPECT_THAT(job.devices(), ElementsAre("a/cpu0", "b/cpu0"));
  EXPECT_THAT(job.plan().strategy().stages(0).devices(), ElementsAre(1));
  v1::JobSpec one = spec;
  one.set_num_devices(1);
  EXPECT_EQ(harness_.jobs->Validate(one, "").message(),
            "spec.num_devices is 1, but the plan is for 2 devices");
  for (const char* worker : {"b", "c"}) harness_.Disconnect(worker);
  const absl::Status refused = harness_.jobs->Validate(spec, "");
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_EQ(refused.message(),
            "spec.strategy cannot be carried out: 1 device is connected, too few for the plan's 2: "
            "start workers, or plan for what is there");
  spec.mutable_plan_options()->clear_found_for();
  EXPECT_EQ(harness_.jobs->Validate(spec, ""), absl::OkStatus()) << "it waits";
}

TEST_F(NamedDevicesLifeTest, AFoundPlanKeepsToItsNumbersWhenThePlannerStartsAgain) {
  Connect({"a"});
  const std::string first = Running(Plan({"a/cpu0"})).name();
  const std::string waits = harness_.Submit(Found({"gone/cpu0"}, {"gone/cpu0"}));
  EXPECT_EQ(harness_.Get(waits).state(), v1::JOB_STATE_PENDING);
  harness_.jobs->Suspend();
  JobHarness next(&store_);
  next.Connect("other");
  next.PassUntil(absl::Now() + absl::Minutes(1));
  EXPECT_THAT(next.Await(waits, v1::JOB_STATE_RUNNING).devices(), ElementsAre("other/cpu0"));
}

TEST_F(NamedDevicesLifeTest, AFoundPlanIsForItsOwnDevicesAsLongAsTheyMayComeBack) {
  Connect({"a"});
  v1::JobSpec waits = SmallSpec();
  waits.set_num_devices(9);
  harness_.Submit(waits);
  harness_.jobs->Suspend();
  JobHarness next(&store_);
  next.Connect("b");
  EXPECT_TRUE(absl::IsUnavailable(next.jobs->Validate(Found({"a/cpu0"}, {"a/cpu0"}), "")));
  // A preset's come from nowhere.
  const v1::JobSpec preset = Found({"node0/device0"}, {"node0/device0"});
  EXPECT_EQ(next.jobs->Validate(preset, ""), absl::OkStatus());
  next.PassUntil(absl::Now() + absl::Minutes(1));
  EXPECT_EQ(next.jobs->Validate(Found({"a/cpu0"}, {"a/cpu0"}), ""), absl::OkStatus());
}

TEST(CheckDevicesTest, NamesThoseThatAreMissingUpToEight) {
  JobRequest request;
  for (int i = 10; i < 20; ++i) request.named_devices.push_back(absl::StrCat("n/", i));
  EXPECT_EQ(CheckDevices(request, {}).message(),
            "spec.plan_options.manual names the devices \"n/10\", \"n/11\", \"n/12\", \"n/13\", "
            "\"n/14\", \"n/15\", \"n/16\", \"n/17\", 2 more, which no connected worker has; 0 "
            "devices are connected: start workers, or plan for what is there");
}

TEST_F(NamedDevicesLifeTest, OneThatAWorkerMayBringBackIsAskedForAgain) {
  Connect({"a"});
  v1::JobSpec waits = SmallSpec();
  waits.set_num_devices(9);
  harness_.Submit(waits);
  harness_.jobs->Suspend();
  JobHarness next(&store_);
  const v1::JobSpec spec = Plan({"a/cpu0"});
  v1::PlanBasis basis;
  basis.add_devices()->set_name("a/cpu0");
  for (const absl::Status& refused :
       {next.jobs->Submit(spec, "").status(), next.jobs->Validate(spec, ""),
        next.jobs->Submit(spec, "", "", &basis).status(), next.jobs->Validate(spec, "", &basis)}) {
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("a/cpu0"));
    EXPECT_GT(DetailsOf(refused).retry_after.value_or(absl::ZeroDuration()), absl::ZeroDuration());
  }
  next.Connect("a");
  EXPECT_TRUE(next.jobs->Validate(spec, "").ok());
  next.Disconnect("a");  // It had come back.
  EXPECT_TRUE(absl::IsInvalidArgument(next.jobs->Validate(spec, "")));
  EXPECT_TRUE(absl::IsAborted(next.jobs->Validate(spec, "", &basis)));
  const v1::JobSpec other = Plan({"b/cpu0"});
  EXPECT_TRUE(absl::IsUnavailable(next.jobs->Validate(other, "")));
  next.PassUntil(absl::Now() + absl::Minutes(1));
  EXPECT_TRUE(absl::IsInvalidArgument(next.jobs->Validate(other, "")));
}

TEST_F(NamedDevicesLifeTest, AJobThatIsKnownIsTheAnswerWhateverIsConnected) {
  Connect({"a"});
  const v1::JobSpec spec = Plan({"a/cpu0"});
  const std::string job = harness_.Submit(spec, "once");
  v1::JobSpec again = harness_.Get(job).spec();
  *again.mutable_graph() = spec.graph();
  harness_.Disconnect("a");
  const auto known = harness_.jobs->Submit(again, "once");
  ASSERT_TRUE(known.ok()) << known.status();
  EXPECT_EQ(known->name(), job);
}

// A job whose plan was made for a's device, and a store that has something happen while the job's
// basis is being looked at.
class BasisOfSubmitTest : public ::testing::Test {
 protected:
  BasisOfSubmitTest() {
    harness_.Connect("a");
    v1::PlanningProblem problem;
    *problem.mutable_graph() = spec_.graph();
    problem.set_mini_batch(spec_.mini_batch());
    problem.set_optimizer(spec_.optimizer().kind());
    problem.set_precision(spec_.precision());
    const auto cluster = JobCluster(harness_.registry.Devices(/*free_only=*/false), LinkTable());
    basis_ = BasisOf(problem, DevicesOf(*cluster));
    SetProfiles({}, basis_);
  }
  void Meanwhile(std::function<void()> happens) {
    OperatorProfile profile;
    profile.devices[{"another", "torch"}] = {{"mm", {"2026-11-22", {{4, 7, 0, 0, 0, 0, 0}}}}};
    EXPECT_TRUE(absl::IsDeadlineExceeded(harness_.profiles.Write(profile)));
    store_.meanwhile = std::move(happens);
  }

  ProfilesInDoubt store_;
  JobHarness harness_{&store_};
  const v1::JobSpec spec_ = SmallSpec();
  v1::PlanBasis basis_;
};

TEST_F(BasisOfSubmitTest, HoldsWhenTheJobIsTaken) {
  EXPECT_EQ(harness_.jobs->Validate(spec_, "once", &basis_), absl::OkStatus());
  Meanwhile([&] { harness_.Disconnect("a"); });
  const absl::Status refused = harness_.jobs->Submit(spec_, "once", "", &basis_).status();
  EXPECT_FALSE(store_.meanwhile);
  EXPECT_TRUE(absl::IsAborted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("device a/cpu0 is gone"));
  EXPECT_THAT(harness_.List(), IsEmpty());
  harness_.Connect("a");
  EXPECT_TRUE(harness_.jobs->Submit(spec_, "once", "", &basis_).ok());
}

TEST_F(BasisOfSubmitTest, AJobThatIsTakenMeanwhileIsTheAnswerWhateverIsConnected) {
  std::string job;
  Meanwhile([&] {
    job = harness_.jobs->Submit(spec_, "once")->name();
    harness_.Disconnect("a");
  });
  const auto known = harness_.jobs->Submit(spec_, "once", "", &basis_);
  EXPECT_FALSE(store_.meanwhile);
  ASSERT_TRUE(known.ok()) << known.status();
  EXPECT_EQ(known->name(), job);
  EXPECT_EQ(harness_.jobs->Validate(spec_, "once", &basis_), absl::OkStatus());
  EXPECT_TRUE(absl::IsAborted(harness_.jobs->Validate(spec_, "another", &basis_)));
}

}  // namespace
}  // namespace stagewright
