#include "planner_service/growth/growth_room.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagewright {
namespace {

// Those that `others` lack, in their order.
std::string Without(const std::vector<std::string>& devices,
                    const std::vector<std::string>& others) {
  std::vector<std::string> own;
  for (const std::string& device : devices) {
    if (std::find(others.begin(), others.end(), device) == others.end()) own.push_back(device);
  }
  return absl::StrJoin(own, ", ");
}

}  // namespace

std::string DevicesInstead(const std::vector<std::string>& now,
                           const std::vector<std::string>& before) {
  if (now.size() != before.size())
    return absl::StrCat(now.size(), now.size() == 1 ? " device" : " devices", " instead of ",
                        before.size());
  const std::string come = Without(now, before);
  return come.empty() ? "" : absl::StrCat(come, " instead of ", Without(before, now));
}

std::string StaysOn(int64_t has, int64_t wants, const std::string& why) {
  return absl::StrCat("runs on ", has, " of ", wants, " devices: ", why);
}

GrowthRoom RoomToGrow(const GrowthCase& job) {
  const auto none = [&](const std::string& why) {
    return GrowthRoom{0, StaysOn(job.has, job.wants, why)};
  };
  if (job.free <= 0) return none("no other is free");
  if (job.waiting > 0) {
    return none(absl::StrCat(job.free, job.free == 1 ? " is free" : " are free", ", but ",
                             job.waiting,
                             job.waiting == 1 ? " job waits for devices and comes first"
                                              : " jobs wait for devices and come first"));
  }
  const int64_t allowed = job.quota_left.value_or(job.free);
  if (allowed <= 0) return none("its quota is used up");
  return {std::min({job.wants - job.has, job.free, allowed}), ""};
}

}  // namespace stagewright
