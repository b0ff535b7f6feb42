#include "planner_service/runs/check_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using Report = v1::ConnectRequest;

// Worker a has devices 0 and 2, worker b device 1; the program has three actions a step.
class CheckReportTest : public ::testing::Test {
 protected:
  CheckReportTest() {
    job_.devices = {"a/cpu0", "b/cpu0", "a/cpu1"};
    JobRequest request;
    job_.request = std::make_shared<const JobRequest>(request);
    v1::Plan plan;
    for (int i = 0; i < 3; ++i) {
      v1::DeviceProgram* device = plan.mutable_program()->add_devices();
      device->set_device(i);
      device->add_body();
    }
    job_.plan = Sealed<v1::Plan>(plan);
    run_.emplace(job_, absl::UnixEpoch());
    Preparation preparation;
    preparation.total_steps = 100;
    EXPECT_TRUE(run_->Prepare("a", preparation).ok());
  }
  absl::Status Check(const std::function<void(Report&)>& make) const {
    Report report;
    make(report);
    return CheckReport(job_, *run_, "a", report);
  }
  void ExpectWrong(const std::string& field, const std::function<void(Report&)>& make) const {
    const absl::Status status = Check(make);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
  }

  Job job_;
  std::optional<stagewright::Run> run_;
};

TEST_F(CheckReportTest, WhatFitsTheProgramIsTaken) {
  EXPECT_TRUE(Check([](Report& r) {
                r.mutable_progress()->set_step(100);
                r.mutable_progress()->add_devices()->set_device(2);
                r.mutable_progress()->add_trace()->set_device(2);
              }).ok());
  EXPECT_TRUE(Check([](Report& r) {
                r.mutable_shard_written()->set_step(7);
                r.mutable_shard_written()->add_files()->set_name("model-00000.safetensors");
              }).ok());
  EXPECT_TRUE(Check([](Report& r) { r.mutable_finished()->add_shards("shard"); }).ok());
  EXPECT_TRUE(Check([](Report& r) { r.mutable_failed()->set_message("no"); }).ok());
  EXPECT_TRUE(Check([](Report& r) { r.mutable_failed()->add_unreached_devices(1); }).ok());
}

TEST_F(CheckReportTest, DevicesAreTheWorkersOwn) {
  for (const int32_t device : {-1, 1, 3, std::numeric_limits<int32_t>::max()}) {
    ExpectWrong("shard_written.device", [device](Report& r) {
      r.mutable_shard_written()->set_step(1);
      r.mutable_shard_written()->set_device(device);
    });
    ExpectWrong("progress.devices.device", [device](Report& r) {
      r.mutable_progress()->set_step(1);
      r.mutable_progress()->add_devices()->set_device(device);
    });
    ExpectWrong("progress.trace.device", [device](Report& r) {
      r.mutable_progress()->set_step(1);
      r.mutable_progress()->add_trace()->set_device(device);
    });
    ExpectWrong("steps_so_far.devices.device", [device](Report& r) {
      r.mutable_steps_so_far()->add_devices()->set_device(device);
    });
    ExpectWrong("prepared.addresses.device",
                [device](Report& r) { r.mutable_prepared()->add_addresses()->set_device(device); });
  }
}

TEST_F(CheckReportTest, StepsAreTheJobs) {
  for (const int64_t step : {int64_t{0}, int64_t{-5}, int64_t{101}, kMostSteps}) {
    ExpectWrong("progress.step", [step](Report& r) { r.mutable_progress()->set_step(step); });
    ExpectWrong("shard_written.step",
                [step](Report& r) { r.mutable_shard_written()->set_step(step); });
    ExpectWrong("checkpoint_written.step",
                [step](Report& r) { r.mutable_checkpoint_written()->set_step(step); });
  }
}

TEST_F(CheckReportTest, ThereIsNoMoreThanTheProgramHas) {
  ExpectWrong("progress.trace", [](Report& r) {
    r.mutable_progress()->set_step(1);
    for (int i = 0; i < 13; ++i) r.mutable_progress()->add_trace()->set_device(0);
  });
  ExpectWrong("progress.devices", [](Report& r) {
    r.mutable_progress()->set_step(1);
    for (int i = 0; i < 3; ++i) r.mutable_progress()->add_devices()->set_device(0);
  });
  ExpectWrong("shard_written.files", [](Report& r) {
    r.mutable_shard_written()->set_step(1);
    for (int i = 0; i <= kMostFiles; ++i) r.mutable_shard_written()->add_files();
  });
}

TEST_F(CheckReportTest, TextsAreBoundedAndCountsNotNegative) {
  const std::string long_text(kMostText + 1, 'x');
  ExpectWrong("failed.message", [&](Report& r) { r.mutable_failed()->set_message(long_text); });
  for (const int32_t device : {-1, 3}) {
    ExpectWrong("failed.unreached_devices",
                [device](Report& r) { r.mutable_failed()->add_unreached_devices(device); });
  }
  ExpectWrong("failed.unreached_devices", [](Report& r) {
    for (int i = 0; i < 4; ++i) r.mutable_failed()->add_unreached_devices(1);
  });
  ExpectWrong("merged.checkpoint_path",
              [&](Report& r) { r.mutable_merged()->set_checkpoint_path(long_text); });
  ExpectWrong("prepared.warnings",
              [&](Report& r) { r.mutable_prepared()->add_warnings(long_text); });
  ExpectWrong("prepared.total_steps", [](Report& r) { r.mutable_prepared()->set_total_steps(-1); });
  ExpectWrong("finished.correct_samples",
              [](Report& r) { r.mutable_finished()->set_correct_samples(-1); });
}

}  // namespace
}  // namespace stagewright
