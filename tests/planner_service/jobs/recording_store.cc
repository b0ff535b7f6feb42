#include "tests/planner_service/jobs/recording_store.h"

#include "absl/strings/match.h"

namespace stagewright::testing {

absl::Status RecordingStore::WriteIf(const std::vector<Condition>& conditions,
                                     const std::vector<Mutation>& batch) {
  absl::MutexLock lock(&mutex_);
  for (const Condition& condition : conditions) {
    const auto it = entries_.find(condition.key);
    const bool holds = condition.value.has_value()
                           ? it != entries_.end() && it->second == *condition.value
                           : it == entries_.end();
    if (!holds) return absl::AbortedError(condition.key);
  }
  for (const Mutation& mutation : batch) {
    v1::Job job;
    if (fail_when_ && absl::StartsWith(mutation.key, "jobs/") && mutation.value.has_value() &&
        job.ParseFromString(*mutation.value) && fail_when_(job)) {
      return absl::Status(fail_code_, "the disk is gone");
    }
  }
  for (const Mutation& mutation : batch) {
    if (mutation.value.has_value()) {
      entries_[mutation.key] = *mutation.value;
    } else {
      entries_.erase(mutation.key);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> RecordingStore::Read(const std::string& key) const {
  absl::MutexLock lock(&mutex_);
  ++reads_;
  auto it = entries_.find(key);
  if (it == entries_.end()) return absl::NotFoundError(key);
  return it->second;
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> RecordingStore::Scan(
    const std::string& prefix) const {
  absl::MutexLock lock(&mutex_);
  ++scans_;
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& entry : entries_) {
    if (absl::StartsWith(entry.first, prefix)) found.push_back(entry);
  }
  return found;
}

absl::StatusOr<std::vector<std::string>> RecordingStore::Keys(const std::string& prefix) const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> found;
  for (const auto& [key, value] : entries_) {
    if (absl::StartsWith(key, prefix)) found.push_back(key);
  }
  return found;
}

int RecordingStore::scans() const {
  absl::MutexLock lock(&mutex_);
  return scans_;
}

int RecordingStore::reads() const {
  absl::MutexLock lock(&mutex_);
  return reads_;
}

v1::JobState RecordingStore::State(const std::string& job) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, value] : entries_) {
    v1::Job stored;
    if (absl::StartsWith(key, "jobs/") && stored.ParseFromString(value) && stored.name() == job)
      return stored.state();
  }
  return v1::JOB_STATE_UNSPECIFIED;
}

void RecordingStore::FailWhen(std::function<bool(const v1::Job&)> fail_when,
                              absl::StatusCode code) {
  absl::MutexLock lock(&mutex_);
  fail_when_ = std::move(fail_when);
  fail_code_ = code;
}

void RecordingStore::Clear() {
  absl::MutexLock lock(&mutex_);
  entries_.clear();
}

std::map<std::string, std::string> RecordingStore::Entries() const {
  absl::MutexLock lock(&mutex_);
  return entries_;
}

void RecordingStore::Replace(std::map<std::string, std::string> entries) {
  absl::MutexLock lock(&mutex_);
  entries_ = std::move(entries);
}

}  // namespace stagewright::testing
