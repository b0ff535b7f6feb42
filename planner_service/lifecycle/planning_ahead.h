// Which losses of running jobs are planned for before they happen. The transitions are the part of
// JobLife (job_life.h) that planning_ahead.cc has.
//
// A job that may start again is looked at soon after its run begins, and then every half minute:
// one worker's loss of one job a tick. If what would be left has no plan yet it is sought on a
// thread of its own, of low priority, one search at a time.
#pragma once

#include <string>
#include <vector>

#include "planner_service/records/job_records.h"

namespace stagewright {

// The job's plan is sought. One that is given is judged in no time, and may name its devices.
bool IsSought(const JobRequest& request);

// The devices that the job would be planned for if it lost the worker now, from all that are
// connected; empty: it would wait, or end.
std::vector<RegisteredDevice> DevicesAfterLoss(const JobRecord& record, const std::string& worker,
                                               std::vector<RegisteredDevice> connected);

// The run begins, or is over: looked at from now on, or no more.
void BeginLooking(JobRecord& record, absl::Time now);
void EndLooking(JobRecord& record);

}  // namespace stagewright
