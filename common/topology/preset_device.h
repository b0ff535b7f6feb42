// What devices are called in clusters that are made by their size, as all presets are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stagewright {

// "node1/device0"
std::string PresetDevice(int32_t node, int32_t device);

// Workers call none of theirs so.
bool IsPresetDevice(std::string_view name);

}  // namespace stagewright
