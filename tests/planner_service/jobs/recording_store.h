// A store that shows what it holds and fails on demand.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "planner_service/store/store.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright::testing {

// In memory. Writes fail while `fail_when` says so.
class RecordingStore : public Store {
 public:
  absl::Status WriteIf(const std::vector<Condition>& conditions,
                       const std::vector<Mutation>& batch) override;
  absl::StatusOr<std::string> Read(const std::string& key) const override;
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Scan(
      const std::string& prefix) const override;
  absl::StatusOr<std::vector<std::string>> Keys(const std::string& prefix) const override;

  // How often somebody has read a whole folder so far.
  int scans() const;
  // How often somebody has read an entry so far.
  int reads() const;
  // The stored state of a job; UNSPECIFIED if there is none.
  v1::JobState State(const std::string& job) const;
  // By default as a store that does not answer.
  void FailWhen(std::function<bool(const v1::Job&)> fail_when,
                absl::StatusCode code = absl::StatusCode::kUnavailable);
  void Clear();
  // Its contents, and those of another time.
  std::map<std::string, std::string> Entries() const;
  void Replace(std::map<std::string, std::string> entries);

 private:
  mutable absl::Mutex mutex_;
  mutable int scans_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable int reads_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::string> entries_ ABSL_GUARDED_BY(mutex_);
  std::function<bool(const v1::Job&)> fail_when_ ABSL_GUARDED_BY(mutex_);
  absl::StatusCode fail_code_ ABSL_GUARDED_BY(mutex_) = absl::StatusCode::kUnavailable;
};

}  // namespace stagewright::testing
