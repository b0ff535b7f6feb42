#include "planner_service/records/job_list.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "planner_service/jobs/job_proto.h"

namespace stagewright {
namespace {

bool IsAskedFor(const EndedJobs::Group& group, const v1::ListJobsRequest& request) {
  const auto& states = request.states();
  const auto is = [](const std::string& asked, const std::string& actual) {
    return asked.empty() || asked == actual;
  };
  return is(request.owner(), group.owner) && is(request.tenant(), group.tenant) &&
         (states.empty() ||
          std::find(states.begin(), states.end(), ToProto(group.state)) != states.end());
}

bool IsAskedFor(const std::string& display_name, const v1::ListJobsRequest& request) {
  return absl::StrContains(display_name, request.display_name_contains());
}

bool IsAskedFor(const Job& job, const v1::ListJobsRequest& request) {
  return IsAskedFor({job.spec->owner(), job.spec->tenant(), job.state}, request) &&
         IsAskedFor(job.spec->display_name(), request);
}

}  // namespace

void VisitAskedFor(const JobRecords& records, int64_t before, const v1::ListJobsRequest& request,
                   const std::function<bool(int64_t, JobRow)>& take) {
  auto live = records.live().lower_bound(before);
  const auto take_live = [&](int64_t down_to) {
    while (live != records.live().begin() && std::prev(live)->first > down_to) {
      const Job& job = ShownJob((--live)->second);
      if (!IsAskedFor(job, request)) continue;
      JobRow row{job, {}};
      row.live->plan.reset();
      row.live->sequential_plan.reset();
      if (!take(job.number, std::move(row))) return false;
    }
    return true;
  };
  bool more = true;
  records.ended().VisitNewest(
      before, [&](const EndedJobs::Group& group) { return IsAskedFor(group, request); },
      [&](const EndedJob& ended) {
        more = take_live(ended.number) && (!IsAskedFor(ended.display_name, request) ||
                                           take(ended.number, JobRow{std::nullopt, ended}));
        return more;
      });
  if (more) take_live(-1);
}

v1::Job Unread(const EndedJob& ended, const absl::Status& why) {
  v1::Job job;
  job.set_name(absl::StrCat("jobs/", ended.number));
  job.set_state(ToProto(ended.state));
  job.set_message(absl::StrCat("cannot be read: ", why.message()));
  job.set_version(ended.version);
  if (ended.end_time != absl::InfiniteFuture()) *job.mutable_end_time() = ToProto(ended.end_time);
  job.mutable_spec()->set_owner(ended.owner);
  job.mutable_spec()->set_tenant(ended.tenant);
  job.mutable_spec()->set_display_name(ended.display_name);
  return job;
}

}  // namespace stagewright
