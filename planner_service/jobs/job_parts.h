// The large parts of jobs in the store: a graph, which many jobs may train, and plans. Each is kept
// once, by what is in it, for as long as a job has it; the job's own entry is small.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "planner_service/store/store.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {

// Not thread-safe. A change is prepared, written with the batch, and then done, or not at all.
class JobParts {
 public:
  // A job's parts as they will be: their hashes, empty for those that it does not have.
  struct Change {
    int64_t job = 0;
    std::vector<std::string> parts;
  };

  // Finds out which jobs have which parts.
  absl::Status Load(const Store& store);

  // Takes the parts out of `job` and adds to the batch what keeps them.
  Change Split(int64_t number, v1::Job& job, std::vector<Mutation>& batch) const;
  // Adds to the batch what forgets the parts of a job that is deleted.
  Change Drop(int64_t number, std::vector<Mutation>& batch) const;
  // The batch was written.
  void Done(const Change& change);
  // It was not, or perhaps it was: what it may have deleted is written again by whoever has it
  // next.
  void Doubt(const Change& change);

  // A job's parts as they are stored, as in a Change; empty if it was stored whole.
  std::vector<std::string> Of(int64_t number) const;
  // Puts these parts back. A job that was stored whole stays as it is. DATA_LOSS names the part
  // that is not there or is not what it was.
  static absl::Status Join(const Store& store, const Change& change, v1::Job& job);
  // The same with those of the job.
  absl::Status Join(const Store& store, int64_t number, v1::Job& job) const {
    return Join(store, Change{number, Of(number)}, job);
  }

 private:
  void AddDifference(const Change& change, std::vector<Mutation>& batch) const;

  std::map<int64_t, std::vector<std::string>> parts_;  // By job.
  std::map<std::string, int> jobs_;                    // How many have the part.
  std::set<std::string> doubtful_;                     // May be missing.
};

// The entry of a part, and whether its value is what the key says.
bool IsPartEntry(absl::string_view key);
bool IsWholePart(absl::string_view key, absl::string_view value);

}  // namespace stagewright
