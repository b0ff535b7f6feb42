#include "worker_daemon/transport/unreached.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace stagewright {
namespace {

constexpr absl::string_view kUnreached = "stagewright/unreached";

}  // namespace

absl::Status WithUnreached(absl::Status status, const std::set<int>& devices) {
  status.SetPayload(kUnreached, absl::Cord(absl::StrJoin(devices, ",")));
  return status;
}

std::set<int> UnreachedOf(const absl::Status& status) {
  std::set<int> devices;
  const auto payload = status.GetPayload(kUnreached);
  if (!payload.has_value()) return devices;
  for (const absl::string_view number : absl::StrSplit(std::string(*payload), ',')) {
    if (int device = 0; absl::SimpleAtoi(number, &device)) devices.insert(device);
  }
  return devices;
}

}  // namespace stagewright
