#include "clients/cli/view/explanation_json.h"

#include <gtest/gtest.h>

namespace stagewright::cli {
namespace {

TEST(ExplanationJson, IsInSecondsAndSaysWhatAChangeGains) {
  v1::Explanation explanation;
  explanation.set_step_ns(4'000'000'000);
  explanation.set_compute_ns(3'000'000'000);
  explanation.set_bubble_ns(500'000'000);
  explanation.set_bottleneck_stage(2);
  explanation.set_bottleneck_device("gpu2");
  v1::WhatIf* lever = explanation.add_levers();
  lever->set_change("faster links");
  lever->set_step_ns(2'000'000'000);
  explanation.add_levers()->set_reason("over memory");
  v1::CutReport* cut = explanation.add_cuts();
  cut->set_from(0);
  cut->set_to(1);
  cut->mutable_smaller()->set_change("n0 less");
  cut->mutable_larger()->set_step_ns(1'000'000'000);

  const nlohmann::json json = ExplanationJson(explanation);
  EXPECT_DOUBLE_EQ(json["iteration_seconds"], 4);
  EXPECT_DOUBLE_EQ(json["compute_seconds"], 3);
  EXPECT_DOUBLE_EQ(json["bubble_seconds"], 0.5);
  EXPECT_EQ(json["bottleneck_stage"], 2);
  EXPECT_EQ(json["bottleneck_device"], "gpu2");
  ASSERT_EQ(json["levers"].size(), 2u);
  EXPECT_EQ(json["levers"][0]["change"], "faster links");
  EXPECT_DOUBLE_EQ(json["levers"][0]["speedup"], 2);
  EXPECT_EQ(json["levers"][1]["reason"], "over memory");
  EXPECT_FALSE(json["levers"][1].contains("speedup"));
  ASSERT_EQ(json["cuts"].size(), 1u);
  EXPECT_EQ(json["cuts"][0]["to"], 1);
  EXPECT_EQ(json["cuts"][0]["smaller"]["change"], "n0 less");
  EXPECT_DOUBLE_EQ(json["cuts"][0]["larger"]["iteration_seconds"], 1);
}

}  // namespace
}  // namespace stagewright::cli
