#include "common/training/learning_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/checkout/source_path.h"

namespace stagewright {
namespace {

using nlohmann::json;

// A schedule of torch.optim.lr_scheduler and the rates that PyTorch gave.
class SchedulesAgainstPyTorch : public ::testing::TestWithParam<std::string> {};

TEST_P(SchedulesAgainstPyTorch, GivesTheSameRates) {
  std::ifstream file(testing::SourcePath("tests/worker_daemon/update/optimizer_reference.json"));
  const json reference = json::parse(file)["schedules"][GetParam()];
  const double rate = reference["learning_rate"];
  const json& options = reference["options"];
  LearningRateSchedule schedule;
  if (GetParam() == "linear") {
    schedule.decay = Decay::kLinear;
    schedule.end_factor = options["end_factor"];
    schedule.decay_steps = options["total_iters"];
  } else if (GetParam() == "cosine") {
    schedule.decay = Decay::kCosine;
    schedule.end_factor = options["eta_min"].get<double>() / rate;
    schedule.decay_steps = options["T_max"];
  } else {
    schedule.decay = Decay::kStep;
    schedule.every = options["step_size"];
    schedule.gamma = options["gamma"];
  }
  ASSERT_TRUE(Check(schedule).ok());
  for (size_t step = 0; step < reference["rates"].size(); ++step) {
    const double expected = reference["rates"][step];
    EXPECT_NEAR(rate * LearningRateFactor(schedule, static_cast<int64_t>(step)), expected,
                1e-12 * rate)
        << "step " << step;
  }
}
INSTANTIATE_TEST_SUITE_P(All, SchedulesAgainstPyTorch,
                         ::testing::Values("linear", "cosine", "step"),
                         [](const auto& param_info) { return param_info.param; });

TEST(LearningRateFactor, RisesThenDecaysFromTheEndOfTheWarmUp) {
  const LearningRateSchedule schedule{Decay::kLinear, 4, 12, 0.5, 1, 0.1};
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 0), 0.25);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 3), 1);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 4), 1);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 8), 0.75);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 12), 0.5);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 1000), 0.5);  // It stays there.
}

TEST(LearningRateFactor, IsConstantUnlessTold) {
  EXPECT_EQ(LearningRateFactor({}, 0), 1);
  EXPECT_EQ(LearningRateFactor({}, 1'000'000), 1);
}

TEST(LearningRateFactor, IsDefinedWhereNothingIsLeftToDecay) {
  const LearningRateSchedule schedule{Decay::kCosine, 5, 5, 0.25, 1, 0.1};
  ASSERT_TRUE(Check(schedule).ok());
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 4), 1);
  EXPECT_DOUBLE_EQ(LearningRateFactor(schedule, 5), 0.25);
}

TEST(ForJob, FillsInTheEndOfTheDecay) {
  EXPECT_EQ(ForJob({Decay::kCosine, 3, 0, 0, 1, 0.1}, 10).decay_steps, 10);
  EXPECT_EQ(ForJob({Decay::kCosine, 3, 7, 0, 1, 0.1}, 10).decay_steps, 7);
  EXPECT_EQ(ForJob({Decay::kCosine, 30, 0, 0, 1, 0.1}, 10).decay_steps, 30);
}

TEST(CheckSchedule, NamesTheField) {
  const auto message = [](LearningRateSchedule schedule) {
    return std::string(Check(schedule).message());
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(message({}), "");
  EXPECT_THAT(message({Decay::kConstant, -1, 0, 0, 1, 0.1}), HasSubstr("schedule.warmup_steps"));
  EXPECT_THAT(message({Decay::kCosine, 9, 5, 0, 1, 0.1}),
              HasSubstr("schedule.decay_steps must be 0 or not less than the 9"));
  EXPECT_THAT(message({Decay::kLinear, 0, 5, 1.5, 1, 0.1}), HasSubstr("schedule.end_factor"));
  EXPECT_THAT(message({Decay::kStep, 0, 0, 0, 0, 0.1}), HasSubstr("schedule.every"));
  EXPECT_THAT(message({Decay::kStep, 0, 0, 0, 1, 0}), HasSubstr("schedule.gamma"));
}

}  // namespace
}  // namespace stagewright
