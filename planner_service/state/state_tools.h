// What operators do with the SQLite file that a planner keeps its state in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace stagewright {

struct StateReport {
  int64_t jobs = 0;
  std::string newest_job;              // "jobs/7"; empty without jobs.
  std::vector<std::string> pages;      // What is wrong with the file itself.
  std::vector<std::string> damaged;    // Entries that cannot be read, each with its job.
  std::vector<std::string> set_aside;  // Entries that could not be read when a planner started.
  bool good() const { return pages.empty() && damaged.empty() && set_aside.empty(); }
};

// Looks through a state, which a planner may be using. FAILED_PRECONDITION if it is none.
absl::StatusOr<StateReport> CheckState(const std::string& state);

// Copies a state, which a planner may be using, as it is at one moment, to a file that is not there
// yet.
absl::Status BackUpState(const std::string& state, const std::string& copy);

// Puts a copy where a planner looks for its state; no planner may be using it. A state with other
// contents is refused with FAILED_PRECONDITION unless `overwrite` is set; then it is moved aside.
// What was done, a line each. Copies that are damaged are refused.
absl::StatusOr<std::vector<std::string>> RestoreState(const std::string& copy,
                                                      const std::string& state, bool overwrite);

// Makes a state usable again that a planner refuses: keeps what can be read, sets aside what is
// damaged, or with `drop` deletes that and what was set aside before. A file that is damaged beyond
// its entries is made anew and moved aside. No planner may be using it. What was done, a line each.
absl::StatusOr<std::vector<std::string>> RepairState(const std::string& state, bool drop);

}  // namespace stagewright
