#include "worker_daemon/checkpoint/step_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/data/safetensors_writer.h"

namespace stagewright {
namespace {

TensorView View(const std::string& name, const std::vector<float>& values) {
  return {name,
          DType::kFloat32,
          {static_cast<int64_t>(values.size())},
          std::as_bytes(std::span(values))};
}

class StepRecordTest : public ::testing::Test {
 protected:
  StepRecordTest() { std::filesystem::remove_all(path_); }
  const std::string path_ = ::testing::TempDir() + "/step_record_test";
};

TEST_F(StepRecordTest, SharesOfAllDevicesMakeUpAStep) {
  const std::vector<float> one = {1, 2}, other = {3};
  ASSERT_TRUE(WriteStepRecord(path_, 4, DeviceId(12), {View(GradientName("w"), one)}, 0.1).ok());
  ASSERT_TRUE(WriteStepRecord(path_, 4, DeviceId(3),
                              {View(GradientName("w"), one), View(ParameterName("w"), other)}, 0.2)
                  .ok());
  const auto record = StepRecord::Open(path_, 4);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->loss(), 0.2 + 0.1);  // To the last bit.
  const auto copies = record->Find("gradient/w");
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].device, DeviceId(3));
  EXPECT_EQ(copies[1].device, DeviceId(12));
  EXPECT_EQ(record->Find("parameter/w").size(), 1u);
  EXPECT_TRUE(record->Find("state/w.exp_avg").empty());
}

TEST_F(StepRecordTest, WhatIsNoRecordIsNamed) {
  EXPECT_EQ(StepRecord::Open(path_, 0).status().code(), absl::StatusCode::kNotFound);
  const std::string directory = path_ + "/steps/step-0000000000";
  std::filesystem::create_directories(directory);
  const std::vector<float> one = {1};
  const std::string file = directory + "/device-00000.safetensors";
  ASSERT_TRUE(WriteSafetensors(file, {View("x", one)}).ok());
  const absl::Status status = StepRecord::Open(path_, 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(file));
}

}  // namespace
}  // namespace stagewright
