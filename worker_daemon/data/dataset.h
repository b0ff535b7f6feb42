// Samples from a `.safetensors` file with one tensor per input of the graph, named as the input,
// samples along the first dimension.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/graph/graph.h"
#include "worker_daemon/data/safetensors.h"

namespace stagewright {

class Dataset {
 public:
  // Opens the file for the inputs `needed` of the graph; others may be missing. NOT_FOUND or
  // INVALID_ARGUMENT, naming file and tensor, if a tensor is missing, has another type or shape
  // than the graph says, or another number of samples; or if there is no sample.
  static absl::StatusOr<Dataset> Open(const Graph& graph, const std::vector<InputId>& needed,
                                      const std::string& path);

  int64_t samples() const { return samples_; }

  // Bytes of one sample of the input. REQUIRES: the input was needed.
  Bytes SampleBytes(InputId input) const { return inputs_[input.index()].sample_bytes; }

  // Copies the samples with these indices, in this order, to `out`, which holds
  // indices.size() * SampleBytes(input). REQUIRES: indices in [0, samples()).
  void Gather(InputId input, std::span<const int64_t> indices, std::byte* out) const;

 private:
  struct InputData {
    const std::byte* data = nullptr;
    Bytes sample_bytes = 0;
  };
  explicit Dataset(SafetensorsFile file) : file_(std::move(file)) {}

  SafetensorsFile file_;
  std::vector<InputData> inputs_;  // By InputId.
  int64_t samples_ = 0;
};

}  // namespace stagewright
