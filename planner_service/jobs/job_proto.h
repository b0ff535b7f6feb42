// Jobs on the wire and in the store, which has them in the same form.
#pragma once

#include <google/protobuf/timestamp.pb.h>

#include <optional>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "planner_service/jobs/job.h"
#include "planner_service/jobs/job_request.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {

v1::JobState ToProto(JobState state);
JobState FromProto(v1::JobState state);

google::protobuf::Timestamp ToProto(absl::Time time);
absl::Time FromProto(const google::protobuf::Timestamp& proto);

v1::Event ToProto(const Event& event);

// INVALID_ARGUMENT names the field of something that cannot be read, with "spec." before it; the
// rest is for Check(JobRequest).
absl::StatusOr<JobRequest> FromProto(const v1::JobSpec& spec);

// Keeps the spec as it came, its graph apart and sealed. O(spec): not under a lock.
void SetSpec(v1::JobSpec spec, Job& job);

// The job on any devices instead of those that its plan names, which are then numbers in the order
// of the cluster that it was found for; none if it names none, or nothing says what it was found
// for. O(spec).
std::optional<Job> ByNumber(const Job& job);

// What of its graph comes along: nothing, names and modules of nodes for views of the plan, or
// neither that nor the plans, which the store keeps apart.
enum class GraphDetail { kNone, kNames, kApart };

// But for `kNone` with its events and what was measured of it.
v1::Job ToProto(const Job& job, GraphDetail detail);

// One that was stored with all of its graph, without `request`. INVALID_ARGUMENT if it has no name
// of a job.
absl::StatusOr<Job> FromProto(v1::Job proto);

}  // namespace stagewright
