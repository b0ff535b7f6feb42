// The tensors of inputs in data files, as a data set and what looks at one open them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/data/mapped_file.h"
#include "common/data/safetensors.h"
#include "common/graph/graph.h"

namespace stagewright {

// The tensor holds samples of the input: its type, and its shape but for their number.
bool HasShapeOf(const TensorView& tensor, const TensorMeta& meta);

// "float32[samples, 4]", for messages.
std::string Expected(const TensorMeta& meta);

// The samples of the input in the file, for messages.
std::string NameInFile(const std::string& path, const std::string& input);

// Opens each file once, so that inputs share files.
class InputFiles {
 public:
  struct Found {
    TensorView tensor;
    const MappedFile* file = nullptr;
    int64_t samples = 0;  // Positive.
  };

  // The samples of the input in the file, of whatever shape. NOT_FOUND or INVALID_ARGUMENT, naming
  // file and tensor, if there are none.
  absl::StatusOr<Found> Open(const std::string& path, const Input& input);

  // The inputs of a file have the same number of samples.
  absl::Status CheckSamples(const std::string& path, const std::string& input, int64_t samples);

  std::vector<std::shared_ptr<const MappedFile>> TakeMappings() { return std::move(mappings_); }

 private:
  absl::StatusOr<Found> Tensor(const std::string& path, const Input& input);

  std::map<std::string, SafetensorsFile> files_;
  std::map<std::string, std::pair<std::string, int64_t>> samples_;  // By path: input, how many.
  std::vector<std::shared_ptr<const MappedFile>> mappings_;
};

}  // namespace stagewright
