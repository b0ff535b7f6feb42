#include "planner_service/lifecycle/restart_rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagewright {
namespace {

// As many as its runs before had, as far as that is known.
size_t DevicesBefore(const JobRecord& record) {
  return std::max(record.devices_before, static_cast<size_t>(record.job.request->num_devices));
}

}  // namespace

bool MayBeLoss(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded;
}

bool MayRestart(const Job& job) {
  return job.request->on_loss != LossPolicy::kFail && job.restarts < job.request->max_restarts;
}

bool GoesOn(const Job& job) {
  return job.restarts > 0 || job.replans > 0 || !job.resume_from.empty();
}

DeviceShare ShareOf(const JobRecord& record, size_t free) {
  const JobRequest& request = *record.job.request;
  const auto asked = static_cast<size_t>(request.num_devices);
  if (!GoesOn(record.job)) {
    if (free > 0 && free >= asked) return {asked == 0 ? free : asked, ""};
    return {0, asked == 0 ? "waiting for a free device"
                          : absl::StrCat("waiting for ", asked, " free devices, ", free,
                                         " are connected")};
  }
  const size_t before = DevicesBefore(record);
  const bool shrinks = request.on_loss == LossPolicy::kShrink;
  const size_t least = std::max<size_t>(shrinks ? record.least_devices : before, 1);
  if (free >= least) return {before == 0 ? free : std::min(before, free), ""};
  return {0,
          absl::StrCat(record.put_back, record.put_back.empty() ? "" : "; ", "waiting: it ",
                       shrinks ? absl::StrCat("needs ", least, least == 1 ? " device" : " devices")
                               : absl::StrCat("had ", least, " devices"),
                       ", ", free, " are free")};
}

std::string WaitsToStart(const JobRecord& record, const std::vector<std::string>& ending,
                         absl::Time now) {
  if (now < record.start_after) return record.job.message;  // It says for how long.
  if (!ending.empty() && now < record.settled_by)
    return absl::StrCat(record.put_back, "; waiting for the run to end on ",
                        absl::StrJoin(ending, ", "));
  return "";
}

bool MayWaitForMore(const JobRecord& record, const absl::Status& planned) {
  const bool does_not_fit = absl::IsFailedPrecondition(planned) ||
                            absl::IsInvalidArgument(planned) || absl::IsResourceExhausted(planned);
  return does_not_fit && GoesOn(record.job) && record.job.devices.size() < DevicesBefore(record);
}

}  // namespace stagewright
