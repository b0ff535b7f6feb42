// Tensors of an artifact that is a `.safetensors` file, as a file on this machine that holds them
// and nothing else: what reads weights files reads it, and a tensor that was not fetched is missing
// in it.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "common/artifacts/artifact.h"
#include "common/artifacts/positioned_file.h"
#include "common/base/status.h"
#include "common/data/safetensors_header.h"

namespace stagewright {

// Errors of ReadSafetensorsHeader and Artifact::Read.
absl::StatusOr<SafetensorsHeader> ReadHeader(const Artifact& artifact);

// Bytes of all that are to be fetched. Called from several threads.
using FetchProgress = std::function<void(uint64_t fetched, uint64_t total)>;

class TensorPart {
 public:
  // Fetches the chunks in which the tensors of these names lie, each once; names that the header
  // has not are passed over. The file lies in `folder`, has no name there and goes with this object
  // and those who have opened it. `header` is the artifact's. `progress` is told after each chunk;
  // null: nobody is. Errors of Artifact::Read and PositionedFile.
  static absl::StatusOr<TensorPart> Fetch(const Artifact& artifact, const SafetensorsHeader& header,
                                          const std::set<std::string>& names,
                                          const std::string& folder,
                                          const FetchProgress& progress = nullptr);

  // It can be opened while this object lives.
  std::string path() const { return file_.OpenPath(); }

 private:
  explicit TensorPart(PositionedFile file) : file_(std::move(file)) {}

  PositionedFile file_;
};

}  // namespace stagewright
