// The jobs that have ended and are stored, as far as they are known without reading them: what is
// listed, counted and forgotten by.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/time/time.h"
#include "planner_service/jobs/job_store.h"

namespace stagewright {

// Not thread-safe. Everything is O(log jobs) but for what it gives back.
class EndedJobs {
 public:
  // One of its number is replaced.
  void Add(EndedJob job);
  void Erase(int64_t number);
  const EndedJob* Find(int64_t number) const;  // Null if there is none.
  size_t size() const { return jobs_.size(); }
  std::map<JobState, int64_t> CountByState() const;  // O(owners).

  // Who has them, and how they ended.
  struct Group {
    std::string owner, tenant;
    JobState state = JobState::kFailed;
    auto operator<=>(const Group&) const = default;
  };
  // Visits those below `before` among those of groups that `in` takes, newest first, until `visit`
  // is false. O((groups + visited) log groups).
  void VisitNewest(int64_t before, const std::function<bool(const Group&)>& in,
                   const std::function<bool(const EndedJob&)>& visit) const;

  // The one that ended first; null if there is none.
  const EndedJob* Oldest() const;

 private:
  static Group GroupOf(const EndedJob& job) { return {job.owner, job.tenant, job.state}; }

  absl::btree_map<int64_t, EndedJob> jobs_;
  std::map<Group, absl::btree_set<int64_t>> groups_;  // None is empty.
  absl::btree_set<std::pair<absl::Time, int64_t>> by_end_;
};

}  // namespace stagewright
