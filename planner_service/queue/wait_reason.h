// Why a job waits, in words for its owner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner_service/queue/queue_state.h"

namespace stagewright {

enum class WaitReason {
  kDevices,   // Too few are free.
  kTooFew,    // Nor are as many connected.
  kNamed,     // One that it names is not free.
  kQuota,     // Its account may not hold as many.
  kBehind,    // It would delay a job that is before it.
  kRoom,      // Jobs are being stopped for it.
  kHeldBack,  // WaitingJob::held_back.
};

// "too_few": in metric labels.
const char* WaitReasonName(WaitReason reason);

// "waits for 2 free devices: 1 is free, 1 is cordoned"
std::string TooFewFree(int64_t needed, const DeviceCounts& devices);
// "waits for 8 devices: 4 are connected and open to jobs, 1 is cordoned"
std::string TooFewThere(int64_t needed, int64_t there, const DeviceCounts& devices);
// "quota of owner alice: 8 devices, 6 in use, the job needs 4"
std::string QuotaUsed(const Account& account, int64_t quota, int64_t in_use, int64_t needed);
// "3rd in the queue behind jobs/17 (priority 10)"
std::string BehindJob(int64_t position, int64_t job, int32_t priority);
// "waits for jobs/3, jobs/5 to save their state and make room"
std::string RoomMadeBy(const std::vector<int64_t>& jobs);

}  // namespace stagewright
