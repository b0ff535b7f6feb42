#include "common/wire/job_state.h"

#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(JobStateTest, ThreeStatesAreTerminal) {
  int terminal = 0;
  for (int state = v1::JobState_MIN; state <= v1::JobState_MAX; ++state) {
    terminal += IsTerminal(static_cast<v1::JobState>(state)) ? 1 : 0;
  }
  EXPECT_EQ(terminal, 3);
  EXPECT_FALSE(IsTerminal(v1::JOB_STATE_RECOVERING));
}

TEST(JobStateTest, NamesAreLowerCase) {
  EXPECT_EQ(JobStateName(v1::JOB_STATE_WAITING_FOR_DEVICES), "waiting_for_devices");
  EXPECT_EQ(JobStateName(v1::JOB_STATE_SUCCEEDED), "succeeded");
}

}  // namespace
}  // namespace stagewright
