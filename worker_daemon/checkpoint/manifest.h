// manifest.json of a checkpoint: what was saved, in which files, and their checksums. It is written
// last, so a directory that has one is a whole checkpoint unless a file was damaged since.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace stagewright {

// A file of a checkpoint, by its name in the directory.
struct CheckpointFile {
  std::string name;
  int64_t bytes = 0;
  uint32_t crc32 = 0;  // zlib's.
};

// What evaluations during training have shown: all that early stopping goes by. The default is that
// of a job without any.
struct EvaluationHistory {
  double best_loss = std::numeric_limits<double>::infinity();
  int64_t since_best = 0;  // Evaluations since then, none of them better.

  friend bool operator==(const EvaluationHistory&, const EvaluationHistory&) = default;
};

// A tensor that is stored in slices, under the names of these.
struct SlicedEntry {
  int32_t dim = 0;
  std::vector<std::string> slices;  // In order along `dim`.
};

struct Manifest {
  int64_t step = 0;     // Steps done.
  int64_t samples = 0;  // Samples consumed: steps times the mini-batch.
  uint64_t seed = 0;    // The seed of the job.
  bool shuffled = true;
  std::string optimizer;   // "sgd", "adam".
  std::string graph;       // Its name.
  std::string run;         // The job's (output_owner.h); empty: of an older version.
  int64_t generation = 0;  // The job's that wrote it; 0: of an older version.
  uint64_t graph_fingerprint = 0;
  EvaluationHistory evaluations;
  std::vector<CheckpointFile> files;
  // Which file has the parameter or buffer, and which the state "<parameter>.<name in
  // torch.optim>", whole or a share of it (state_shares.h).
  std::map<std::string, std::string> weight_map, optimizer_map;
  std::map<std::string, std::string> aliases;  // Other names of tied parameters, and theirs.
  // Parameters that are in the maps slice by slice, with their states.
  std::map<std::string, SlicedEntry> slices;
};

inline constexpr char kManifestName[] = "manifest.json";

// Atomically. Errors of WriteAtomically.
absl::Status WriteManifest(const std::string& directory, const Manifest& manifest);

// NOT_FOUND if there is none; DATA_LOSS, naming the file, if it is damaged or of a later version.
absl::StatusOr<Manifest> ReadManifest(const std::string& directory);

// Size and checksum of the file; its name is the last part of `path`. NOT_FOUND or UNAVAILABLE
// names a file that cannot be read. O(bytes).
absl::StatusOr<CheckpointFile> SumFile(const std::string& path);

}  // namespace stagewright
