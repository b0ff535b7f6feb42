// What people call the schedule of a stage.
#pragma once

#include <cstdint>
#include <string>

#include "stagewright/v1/strategy.pb.h"

namespace stagewright::cli {

// "1F1B", "4F4B", "GPipe", "looped x2", "split backward", "async 1F1B" or several of them.
std::string ScheduleText(const v1::Strategy& strategy, int32_t stage);

}  // namespace stagewright::cli
