#include "planner_service/jobs/job_proto.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/wire/job_state.h"
#include "tests/planner_service/jobs/small_spec.h"

namespace stagewright {
namespace {

// Every field that the planner keeps has a value.
v1::Job Everything() {
  v1::Job job;
  job.set_name("jobs/7");
  job.set_state(v1::JOB_STATE_RECOVERING);
  job.set_message("waits");
  *job.mutable_spec() = testing::SmallSpec();
  v1::Plan* plan = job.mutable_plan();
  for (const int32_t device : {2, 0}) {
    plan->mutable_program()->add_devices();
    plan->mutable_evaluation()->add_devices()->set_device(device);
  }
  job.mutable_sequential_plan()->mutable_evaluation()->set_iteration_ns(5);
  v1::JobMetrics* metrics = job.mutable_metrics();
  metrics->set_step(1);
  metrics->set_total_steps(2);
  metrics->set_loss(0.5);
  metrics->set_step_ns(3);
  metrics->set_median_step_ns(4);
  metrics->set_predicted_step_ns(5);
  metrics->set_accuracy(0.25);
  metrics->set_evaluation_loss(0.125);
  metrics->set_samples_per_second(6);
  metrics->set_skipped_steps(7);
  metrics->set_loss_scale(8);
  for (int i = 0; i < 2; ++i) {
    v1::DeviceMemory* memory = metrics->add_memory();
    memory->set_device("a/cpu0");
    memory->set_predicted_peak_bytes(9);
    memory->set_measured_peak_bytes(10);
    memory->set_in_use_bytes(11);
    memory->set_reserved_bytes(12);
    memory->set_allocations(13);
  }
  job.mutable_create_time()->set_seconds(14);
  job.mutable_create_time()->set_nanos(15);
  job.mutable_end_time()->set_seconds(16);
  job.set_generation(17);
  job.set_version(18);
  job.set_checkpoint_path("/out/model.safetensors");
  for (const char* device : {"a/cpu0", "b/cpu0", "b/cpu1"}) job.add_devices(device);
  job.add_warnings("slow");
  job.set_restarts(19);
  job.set_checkpoint_step(20);
  job.set_failure_code(10);
  job.mutable_checkpoint_time()->set_seconds(21);
  job.set_preemptions(27);
  job.set_preempted(true);
  job.set_preempted_devices(2);
  job.set_most_devices(28);
  job.set_growth("runs on 2 of 3 devices");
  v1::Straggler* straggler = job.add_stragglers();
  straggler->set_device("b/cpu0");
  straggler->set_stage(1);
  straggler->set_ratio(1.75);
  straggler->set_since_step(29);
  straggler->set_busy_ns(30);
  straggler->set_expected_ns(31);
  v1::Event* event = job.add_events();
  event->mutable_time()->set_seconds(22);
  event->mutable_last_time()->set_seconds(23);
  event->set_count(24);
  event->set_kind(v1::EVENT_KIND_WORKER_LOST);
  event->set_state(v1::JOB_STATE_RUNNING);
  event->set_message("no heartbeat");
  event->set_job("jobs/7");
  event->set_worker("w0");
  event->set_generation(25);
  event->set_step(26);
  return job;
}

TEST(JobProto, ComesBack) {
  const auto job = FromProto(Everything());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->number, 7);
  EXPECT_EQ(job->metrics.memory[0].device, 2);
  v1::Job back = ToProto(*job, GraphDetail::kApart);
  EXPECT_FALSE(back.spec().has_graph() || back.has_plan() || back.has_sequential_plan());
  *back.mutable_spec()->mutable_graph() = *job->graph;
  *back.mutable_plan() = *job->plan;
  *back.mutable_sequential_plan() = *job->sequential_plan;
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(back, Everything()))
      << back.ShortDebugString();
  for (int state = v1::JOB_STATE_PENDING; state <= v1::JobState_MAX; ++state) {
    v1::Job proto = Everything();
    proto.set_state(static_cast<v1::JobState>(state));
    EXPECT_EQ(ToProto(FromProto(proto)->state), state);
  }
}

TEST(JobProto, EveryKindOfEventComesBackUnderItsOwnName) {
  for (int kind = v1::EVENT_KIND_SUBMITTED; kind <= v1::EventKind_MAX; ++kind) {
    v1::Job proto = Everything();
    proto.mutable_events(0)->set_kind(static_cast<v1::EventKind>(kind));
    const auto job = FromProto(proto);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(ToProto(job->events[0]).kind(), kind);
    std::string name = v1::EventKind_Name(static_cast<v1::EventKind>(kind));
    absl::AsciiStrToLower(&name);
    EXPECT_EQ(absl::StrCat("event_kind_", EventKindName(job->events[0].kind)), name);
  }
}

TEST(JobProto, StatesHaveTheNamesOfTheWire) {
  for (int state = v1::JOB_STATE_PENDING; state <= v1::JobState_MAX; ++state) {
    v1::Job proto = Everything();
    proto.set_state(static_cast<v1::JobState>(state));
    EXPECT_EQ(JobStateName(FromProto(proto)->state), JobStateName(proto.state()));
  }
}

TEST(JobProto, TheGraphStaysBehindButForNames) {
  const auto job = FromProto(Everything());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE(ToProto(*job, GraphDetail::kNone).spec().has_graph());
  const v1::Job named = ToProto(*job, GraphDetail::kNames);
  const v1::Graph graph = Everything().spec().graph();
  ASSERT_EQ(named.spec().graph().nodes_size(), graph.nodes_size());
  EXPECT_EQ(named.spec().graph().nodes(0).name(), graph.nodes(0).name());
  EXPECT_EQ(named.spec().graph().nodes(0).args_size(), 0);
  EXPECT_EQ(named.spec().graph().parameters_size(), 0);
}

TEST(JobProto, AJobHasAName) {
  v1::Job job = Everything();
  job.set_name("seven");
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(job).status()));
}

TEST(JobRequestProto, APlanByHandWantsTheDevicesThatItNumbers) {
  v1::JobSpec spec = testing::SmallSpec();
  spec.set_planner("manual");
  spec.clear_num_devices();
  const auto wanted = [&](const std::string& plan) {
    spec.mutable_plan_options()->set_manual(plan);
    const auto request = FromProto(spec);
    EXPECT_TRUE(request.ok()) << request.status();
    return request.ok() ? request->num_devices : -1;
  };
  EXPECT_EQ(wanted(R"({"stages": [{"devices": [0]}, {"devices": [3, 1]}]})"), 4);
  EXPECT_EQ(wanted(R"({"stages": [{"devices": [0]}, {"devices": ["w1/cpu0"]}]})"), 0);
  for (const char* unreadable :
       {"", "{", "[]", R"({"stages": 3})", R"({"stages": [{"devices": 2}]})",
        R"({"stages": [{"devices": [100000]}]})"})
    EXPECT_EQ(wanted(unreadable), 0) << unreadable;
  spec.set_num_devices(3);
  EXPECT_EQ(wanted(R"({"stages": [{"devices": [0]}]})"), 3);
  spec.clear_num_devices();
  spec.set_planner("auto");
  EXPECT_EQ(wanted(R"({"stages": [{"devices": [0]}]})"), 0);
}

TEST(JobRequestProto, AJobByNumberNamesNoDevices) {
  v1::JobSpec spec = testing::SmallSpec();
  spec.set_planner("manual");
  spec.clear_num_devices();
  const auto submitted = [&] {
    Job job;
    job.request = std::make_shared<const JobRequest>(*FromProto(spec));
    SetSpec(spec, job);
    return job;
  };
  spec.mutable_plan_options()->set_manual(
      R"({"stages":[{"devices":["gpu1"]},{"devices":["gpu0"]}]})");
  EXPECT_FALSE(ByNumber(submitted()).has_value()) << "by hand";
  for (const char* device : {"gpu0", "gpu1", "gpu2"})
    spec.mutable_plan_options()->add_found_for(device);
  const Job job = submitted();
  const auto numbered = ByNumber(job);
  ASSERT_TRUE(numbered.has_value());
  EXPECT_EQ(job.request->named_devices.size(), 2u);
  EXPECT_TRUE(numbered->request->named_devices.empty());
  EXPECT_EQ(numbered->request->num_devices, 2);
  const std::string plan = R"({"stages":[{"devices":[1]},{"devices":[0]}]})";
  EXPECT_EQ(numbered->request->options.manual, plan);
  EXPECT_EQ(numbered->spec->plan_options().manual(), plan) << "as it is stored";
  spec.set_planner("auto");
  EXPECT_FALSE(ByNumber(submitted()).has_value());
}

TEST(JobRequestProto, HoldsWhatTheSpecSays) {
  v1::JobSpec spec = testing::SmallSpec();
  spec.set_num_devices(3);
  spec.set_max_restarts(2);
  spec.set_on_loss(v1::LOSS_POLICY_WAIT);
  spec.set_step_timeout_ns(kSecond.count());
  spec.mutable_records()->set_steps(4);
  spec.mutable_strategy()->set_asynchronous(true);
  spec.mutable_plan_options()->set_batch_statistics(v1::BATCH_STATISTICS_MICRO);
  const auto request = FromProto(spec);
  ASSERT_TRUE(request.ok()) << request.status();
  ASSERT_NE(request->graph, nullptr);
  EXPECT_EQ(request->mini_batch, spec.mini_batch());
  EXPECT_EQ(request->num_devices, 3);
  EXPECT_EQ(request->max_restarts, 2);
  EXPECT_EQ(request->on_loss, LossPolicy::kWait);
  EXPECT_EQ(request->step_timeout, absl::Seconds(1));
  EXPECT_EQ(request->records.steps, 4);
  EXPECT_TRUE(request->strategy->asynchronous);
  EXPECT_EQ(request->strategy->batch_statistics, BatchStatistics::kMicro);
  spec.set_on_loss(static_cast<v1::LossPolicy>(77));
  EXPECT_EQ(FromProto(spec).status().message(), "spec.on_loss: unknown policy 77");
}

}  // namespace
}  // namespace stagewright
