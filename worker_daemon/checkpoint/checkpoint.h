// Checkpoints of a job that is under way: directories OUTPUT/checkpoints/step-0000000100/ with
// model-00003.safetensors and optimizer-00003.safetensors of every device, and a manifest, written
// last. Tensors are addressed by the name of their parameter, so that a job under any other plan
// can go on from them. Random numbers need no state: the order of samples and dropout are pure
// functions of the job's seed and the step. No LibTorch here.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/data/safetensors.h"
#include "common/data/sliced_tensors.h"
#include "common/graph/graph.h"
#include "worker_daemon/checkpoint/manifest.h"

namespace stagewright {

// Where the checkpoints of a job lie, and the one after `step` steps.
std::string CheckpointRoot(const std::string& output_path);
std::string CheckpointDirectory(const std::string& root, int64_t step);

// Who writes: a generation of a job's run.
struct RunGeneration {
  std::string run;
  int64_t generation = 0;
};

// Writes what `device` owns into `directory`, which is made if absent, and tells names, sizes and
// checksums. `evaluations`, the same on all devices, goes along for CompleteCheckpoint. An older
// manifest there is removed first: what it promised holds no more. FAILED_PRECONDITION, with
// nothing changed, if that is of a later generation of the writer's run. Errors of
// WriteSafetensors, or UNAVAILABLE naming the directory; then no file that it has written stays.
absl::StatusOr<std::vector<CheckpointFile>> WriteDeviceFiles(
    const std::string& directory, DeviceId device, const std::vector<TensorView>& model,
    const std::vector<TensorView>& optimizer, const EvaluationHistory& evaluations,
    const RunGeneration& writer = {});

// Makes a checkpoint of the files that all devices have written: fills in the maps and the
// evaluations of `manifest` from its files and the graph, and writes it. Then it is durable, and so
// are the directory's entry in its parent and that one's. INVALID_ARGUMENT names a parameter that
// is in two files, or in none; FAILED_PRECONDITION as WriteDeviceFiles; errors of
// SafetensorsFile::Open, SyncDirectory and WriteManifest.
absl::Status CompleteCheckpoint(const std::string& directory, const Graph& graph,
                                Manifest manifest);

// Removes all but the newest `keep` checkpoints among those of at most `step` steps, and what is
// unfinished of before `step`. Only checkpoints of these runs count and go; none stands for all.
// One that is not `to_stay` by its step goes, and is not counted, unless it is the one of `step`.
// Only regular files that a checkpoint has are removed, and directories that are then empty; what
// a link leads to stays. Returns what could not be removed, a message each.
std::vector<std::string> PruneCheckpoints(
    const std::string& root, int64_t step, int keep, const std::set<std::string>& runs = {},
    const std::function<bool(int64_t)>& to_stay = [](int64_t) { return true; });

// Removes all but those of `run`, one after the other, until `stop` says that somebody else has
// done so, and may have written new ones since. Returns as PruneCheckpoints.
std::vector<std::string> ClearCheckpoints(const std::string& root, const std::string& run,
                                          const std::function<bool()>& stop);

// Removes what is unfinished, of whatever run, but for the checkpoints of the steps that are
// `kept`: before a generation of a job writes, when no earlier one may any more. Returns as
// PruneCheckpoints.
std::vector<std::string> DropUnfinished(const std::string& root, const std::set<int64_t>& kept);

// Removes what there is of the checkpoints after these steps, if they are unfinished. Returns as
// PruneCheckpoints.
std::vector<std::string> DropFailed(const std::string& root, const std::set<int64_t>& steps);

// Whether who resumes from `resume_path` goes on from what is in `output_path` itself: from the
// directory, its checkpoints, or one of them, by whatever spelling or link.
bool ResumesOwn(const std::string& resume_path, const std::string& output_path);

// A checkpoint that can be read.
class Checkpoint {
 public:
  // Reads the manifest and compares sizes and checksums: DATA_LOSS, NOT_FOUND or UNAVAILABLE names
  // the file that is damaged or missing. O(bytes).
  static absl::StatusOr<Checkpoint> Open(const std::string& directory);

  // `path` is a checkpoint, or a job's output directory, of which it finds the newest checkpoint
  // that is whole; damaged ones are skipped, and `skipped` says why, a message each. Those of other
  // runs than these are passed over in silence; no runs stand for all. NOT_FOUND, naming the path,
  // if there is none; UNAVAILABLE if that cannot be said, since a directory cannot be read.
  static absl::StatusOr<Checkpoint> Find(const std::string& path, std::vector<std::string>* skipped,
                                         const std::set<std::string>& runs = {});

  const std::string& directory() const { return directory_; }
  const Manifest& manifest() const { return manifest_; }

  // Null if there is none of that name. Views live as long as the checkpoint. What is stored in
  // slices was put together in memory when the checkpoint was opened.
  const TensorView* Weight(const std::string& name) const;
  // The names of all weights; of those in slices, the whole tensors'.
  std::vector<std::string> WeightNames() const;
  // State of the optimizer that is of no parameter, such as the scale of the loss. Null if there is
  // none of that name, which has no dot.
  const TensorView* SharedState(const std::string& name) const;
  // The state of the parameter's optimizer, under the names of torch.optim; may be empty.
  std::map<std::string, TensorView> OptimizerState(const std::string& parameter) const;

 private:
  absl::Status JoinStateShares();
  absl::Status JoinSliced(const std::string& name, const SlicedEntry& sliced);
  const TensorView* FindIn(const std::map<std::string, std::string>& map,
                           const std::string& name) const;

  std::string directory_;
  Manifest manifest_;
  std::map<std::string, SafetensorsFile> files_;
  // What was in slices or shares: weights by their names, states as "<parameter>.<state>".
  std::map<std::string, OwnedTensor> joined_weights_, joined_states_;
  std::map<std::string, TensorView> joined_views_, joined_state_views_;
};

// Whether the output directory has a checkpoint with a manifest.
bool HasCheckpoints(const std::string& output_path);

}  // namespace stagewright
