// Which job an output directory belongs to: OUTPUT/stagewright-job.json says it, so that two jobs
// never mix their files there, whoever still remembers them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace stagewright {

// A job, for machines and for people.
struct OutputOwner {
  std::string run;         // No other job ever has it; equal in all generations of a job.
  std::string job;         // "jobs/7", which a planner with a new state gives again.
  std::string name;        // The job's display name.
  int64_t generation = 0;  // The last that was prepared; 0: of an older version.
};

inline constexpr char kOwnerName[] = "stagewright-job.json";

// `text` as a part of a path: what could lead elsewhere becomes "-".
std::string PathPart(const std::string& text);

// Nothing if there is no such file. DATA_LOSS names one that is damaged.
absl::StatusOr<std::optional<OutputOwner>> ReadOwner(const std::string& output_path);

// Whether a job has left a checkpoint, a trained model or shards of one there.
bool HoldsResults(const std::string& output_path);

// FAILED_PRECONDITION, naming the path and the other job, if what is there is another job's than
// `run`. Of a path that holds no results nobody is asked. Reads only.
absl::Status MayTakeOutput(const std::string& output_path, const std::string& run);

// FAILED_PRECONDITION, naming the path and the job, if the directory is that of one of these runs,
// which have not ended, under whatever name it is reached. Reads only.
absl::Status CheckNotInUse(const std::string& output_path,
                           const std::vector<std::string>& unfinished);

// What becomes of other jobs' checkpoints where a job takes a directory.
enum class OthersResults { kRefused, kKept, kCleared };

// From now on the directory, which is made if absent, is the owner's, and what generations of it
// before this one still write is refused. Errors of MakeDirectories and WriteAtomically;
// FAILED_PRECONDITION names a checkpoint that cannot be removed, or another job that has taken the
// directory at the same time; as MayTakeOutput where others' results are refused.
absl::Status TakeOutput(const std::string& output_path, const OutputOwner& owner,
                        OthersResults others);

// FAILED_PRECONDITION, naming the other job, if the directory is not that run's any more, or if a
// later generation of it writes there.
absl::Status CheckOwned(const std::string& output_path, const std::string& run, int64_t generation);

// Where a generation of a run has the shards of the trained model until they are merged.
std::string ShardDirectory(const std::string& output_path, const std::string& run,
                           int64_t generation);

// Removes shards that nobody merges any more: those of earlier generations of the run and, with
// `others`, of all other runs, but for the directory that the file `weights` is in. As RemoveOurs
// (own_files.h), and only while the output directory is this generation's. Returns what could not
// be removed, a message each.
std::vector<std::string> DropShards(const std::string& output_path, const std::string& run,
                                    int64_t generation, bool others,
                                    const std::string& weights = "");

}  // namespace stagewright
