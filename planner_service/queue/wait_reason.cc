#include "planner_service/queue/wait_reason.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagewright {
namespace {

std::string Devices(int64_t count) {
  return absl::StrCat(count, count == 1 ? " device" : " devices");
}

std::string Are(int64_t count, const char* what) {
  return absl::StrCat(count, count == 1 ? " is " : " are ", what);
}

// What no job can have now: ", 1 is cordoned".
std::string KeptBack(const DeviceCounts& devices) {
  std::string text;
  if (devices.ending > 0) absl::StrAppend(&text, ", ", Are(devices.ending, "being left"));
  if (devices.stuck > 0)
    absl::StrAppend(&text, ", ", Are(devices.stuck, "not left yet by the run before"));
  if (devices.cordoned > 0) absl::StrAppend(&text, ", ", Are(devices.cordoned, "cordoned"));
  if (devices.draining > 0) absl::StrAppend(&text, ", ", Are(devices.draining, "draining"));
  if (devices.quarantined > 0)
    absl::StrAppend(&text, ", ", Are(devices.quarantined, "in quarantine"));
  if (devices.kept > 0)
    absl::StrAppend(&text, ", ", Are(devices.kept, "kept for jobs before that name them"));
  return text;
}

const char* Ordinal(int64_t number) {
  const int64_t tens = number % 100;
  if (tens >= 11 && tens <= 13) return "th";
  switch (number % 10) {
    case 1:
      return "st";
    case 2:
      return "nd";
    case 3:
      return "rd";
    default:
      return "th";
  }
}

}  // namespace

const char* WaitReasonName(WaitReason reason) {
  switch (reason) {
    case WaitReason::kDevices:
      return "devices";
    case WaitReason::kTooFew:
      return "too_few";
    case WaitReason::kNamed:
      return "named";
    case WaitReason::kQuota:
      return "quota";
    case WaitReason::kBehind:
      return "behind";
    case WaitReason::kRoom:
      return "room";
    case WaitReason::kHeldBack:
      return "held_back";
  }
  return "";
}

std::string TooFewFree(int64_t needed, const DeviceCounts& devices) {
  return absl::StrCat("waits for ", needed,
                      needed == 1 ? " free device: " : " free devices: ", Are(devices.free, "free"),
                      KeptBack(devices));
}

std::string TooFewThere(int64_t needed, int64_t there, const DeviceCounts& devices) {
  return absl::StrCat("waits for ", Devices(needed), ": ", Are(there, "connected and open to jobs"),
                      KeptBack(devices));
}

std::string QuotaUsed(const Account& account, int64_t quota, int64_t in_use, int64_t needed) {
  return absl::StrCat("quota of ", account.Text(), ": ", Devices(quota), ", ", in_use,
                      " in use, the job needs ", needed);
}

std::string BehindJob(int64_t position, int64_t job, int32_t priority) {
  return absl::StrCat(position, Ordinal(position), " in the queue behind jobs/", job, " (priority ",
                      priority, ")");
}

std::string RoomMadeBy(const std::vector<int64_t>& jobs) {
  return absl::StrCat(
      "waits for ",
      absl::StrJoin(jobs, ", ",
                    [](std::string* out, int64_t job) { absl::StrAppend(out, "jobs/", job); }),
      jobs.size() == 1 ? " to save its state" : " to save their state", " and make room");
}

}  // namespace stagewright
