#include "common/topology/preset_device.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

constexpr std::string_view kNode = "node", kDevice = "/device";

bool IsNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

}  // namespace

std::string PresetDevice(int32_t node, int32_t device) {
  return absl::StrCat(std::string(kNode), node, std::string(kDevice), device);
}

bool IsPresetDevice(std::string_view name) {
  const size_t slash = name.find(kDevice);
  return name.substr(0, kNode.size()) == kNode && slash != std::string_view::npos &&
         IsNumber(name.substr(kNode.size(), slash - kNode.size())) &&
         IsNumber(name.substr(slash + kDevice.size()));
}

}  // namespace stagewright
