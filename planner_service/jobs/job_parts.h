// The large parts of jobs in the store: a graph, which many jobs may train, and plans. Each is kept
// once, by what is in it, for as long as a job has it; the job's own entry is small.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "planner_service/store/store.h"
#include "planner_service/wire/sealed.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {

// Not thread-safe. A change is prepared, written with the batch, and then done, or not at all.
class JobParts {
 public:
  // Hashes of a job's parts, empty for those that it does not have; none if it was stored whole.
  using Parts = std::vector<std::string>;
  // Its graph, plan and sequential plan; null: it has none.
  using Seals = std::array<const Seal*, 3>;
  // What was read, by hash.
  using Blobs = absl::flat_hash_map<std::string, std::string>;
  // A job's parts as they will be and as they were.
  struct Change {
    int64_t job = 0;
    Parts parts, before;
  };

  // Finds out how many jobs have which parts, and which parts these jobs have.
  absl::Status Load(const Store& store, const std::set<int64_t>& jobs);

  // Adds to the batch what keeps the job's parts. O(parts that the store lacks). REQUIRES: the job
  // is new, was given to Load, or was written since, and has not been put to rest.
  Change Split(int64_t number, const Seals& seals, std::vector<Mutation>& batch) const;
  // Adds to the batch what forgets the parts of a job that is deleted. Errors of PartsOf.
  absl::StatusOr<Change> Drop(const Store& store, int64_t number,
                              std::vector<Mutation>& batch) const;
  // The batch was written.
  void Done(const Change& change);
  // It was not, or perhaps it was: what it may have deleted is written again by whoever has it
  // next.
  void Doubt(const Change& change);
  // Nothing is written of the job any more, until it is deleted: the store knows its parts.
  void Rest(int64_t number) { parts_.erase(number); }

  // As Join, of a job that is not at rest, whose parts need not be looked up. What many jobs share
  // is read once where `read` is the same.
  absl::Status JoinKnown(const Store& store, int64_t number, v1::Job& job, Blobs& read) const;

  // As the store has them, by any thread.
  static absl::StatusOr<Parts> PartsOf(const Store& store, int64_t number);
  // Puts the job's parts back, by any thread. A job that was stored whole stays as it is. DATA_LOSS
  // names the part that is not there or is not what it was.
  static absl::Status Join(const Store& store, int64_t number, v1::Job& job);

 private:
  // Half of a part's hash: nothing else has the same.
  using PartId = std::array<char, 32>;
  static PartId IdOf(const std::string& hash);

  void AddDifference(const Change& change, std::vector<Mutation>& batch) const;

  std::map<int64_t, Parts> parts_;         // By job, of those that are not at rest.
  absl::flat_hash_map<PartId, int> jobs_;  // How many have the part.
  std::set<std::string> doubtful_;         // May be missing.
  std::set<int64_t> unsure_;               // Jobs whose parts the store may know otherwise.
};

// The entry of a part, and whether its value is what the key says.
bool IsPartEntry(absl::string_view key);
bool IsWholePart(absl::string_view key, absl::string_view value);

}  // namespace stagewright
