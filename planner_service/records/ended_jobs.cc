#include "planner_service/records/ended_jobs.h"

#include <iterator>
#include <queue>
#include <vector>

namespace stagewright {

void EndedJobs::Add(EndedJob job) {
  const int64_t number = job.number;
  Erase(number);
  groups_[GroupOf(job)].insert(number);
  by_end_.insert({job.end_time, number});
  jobs_.emplace(number, std::move(job));
}

void EndedJobs::Erase(int64_t number) {
  const auto job = jobs_.find(number);
  if (job == jobs_.end()) return;
  const auto group = groups_.find(GroupOf(job->second));
  group->second.erase(number);
  if (group->second.empty()) groups_.erase(group);
  by_end_.erase({job->second.end_time, number});
  jobs_.erase(job);
}

const EndedJob* EndedJobs::Find(int64_t number) const {
  const auto job = jobs_.find(number);
  return job == jobs_.end() ? nullptr : &job->second;
}

std::map<JobState, int64_t> EndedJobs::CountByState() const {
  std::map<JobState, int64_t> counts;
  for (const auto& [group, jobs] : groups_)
    counts[group.state] += static_cast<int64_t>(jobs.size());
  return counts;
}

void EndedJobs::VisitNewest(int64_t before, const std::function<bool(const Group&)>& in,
                            const std::function<bool(const EndedJob&)>& visit) const {
  // The newest of each group, and where it is in it.
  using Set = absl::btree_set<int64_t>;
  struct Next {
    const Set* group;
    Set::const_iterator at;
    bool operator<(const Next& other) const { return *at < *other.at; }
  };
  std::priority_queue<Next> next;
  const auto push = [&](const Set& group, Set::const_iterator behind) {
    if (behind != group.begin()) next.push({&group, std::prev(behind)});
  };
  for (const auto& [group, jobs] : groups_) {
    if (in(group)) push(jobs, jobs.lower_bound(before));
  }
  while (!next.empty()) {
    const Next newest = next.top();
    next.pop();
    if (!visit(jobs_.at(*newest.at))) return;
    push(*newest.group, newest.at);
  }
}

const EndedJob* EndedJobs::Oldest() const {
  return by_end_.empty() ? nullptr : Find(by_end_.begin()->second);
}

}  // namespace stagewright
