#include "planner_service/growth/growth_room.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stagewright {

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
