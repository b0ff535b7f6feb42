#include "planner_service/runs/trace_window.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

class TraceWindowTest : public ::testing::Test {
 protected:
  bool Tell(int32_t device, int64_t step, bool actions = true) {
    TraceEvent event;
    event.device = DeviceId(device);
    event.step = static_cast<int32_t>(step);
    std::vector<TraceEvent> events;
    if (actions) events.push_back(event);
    return window_.Add(device, step, events, {});
  }

  TraceWindow window_{2};
};

TEST_F(TraceWindowTest, IsCompleteWhenAllHaveToldOfItsLastStep) {
  EXPECT_FALSE(window_.open());
  EXPECT_FALSE(Tell(0, 0));  // Nobody asked.
  window_.Ask(5, 2, absl::UnixEpoch());
  EXPECT_TRUE(window_.open());
  EXPECT_FALSE(Tell(0, 5));
  EXPECT_FALSE(Tell(0, 6));
  EXPECT_FALSE(Tell(1, 4));
  EXPECT_FALSE(Tell(1, 5));
  EXPECT_TRUE(Tell(1, 6));
  const TraceWindow::Told told = window_.Take();
  EXPECT_EQ(told.steps, 2);
  EXPECT_EQ(told.last, 6);
  EXPECT_EQ(told.events.size(), 4u);
  EXPECT_FALSE(window_.open());
}

TEST_F(TraceWindowTest, AStepThatADeviceHasNotToldIsLeftOut) {
  window_.Ask(5, 3, absl::UnixEpoch());
  for (const int64_t step : {5, 6, 7}) Tell(0, step);
  EXPECT_FALSE(Tell(1, 5, /*actions=*/false));  // It was asked too late.
  EXPECT_FALSE(Tell(1, 6));
  EXPECT_FALSE(Tell(1, 6));  // Again.
  EXPECT_TRUE(Tell(1, 7));
  const TraceWindow::Told told = window_.Take();
  EXPECT_EQ(told.steps, 2);
  EXPECT_EQ(told.events.size(), 4u);
}

TEST_F(TraceWindowTest, ANewQuestionForgetsTheOldAnswers) {
  window_.Ask(0, 2, absl::UnixEpoch());
  Tell(0, 0);
  Tell(1, 0);
  window_.Ask(10, 1, absl::UnixEpoch());
  Tell(0, 1);
  EXPECT_FALSE(Tell(1, 1));
  Tell(0, 10);
  EXPECT_TRUE(Tell(1, 10));
  EXPECT_EQ(window_.Take().steps, 1);
}

}  // namespace
}  // namespace stagewright
