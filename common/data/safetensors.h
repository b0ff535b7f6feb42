// Reading `.safetensors` files: an 8-byte little-endian header length, a JSON header that maps
// names to type, shape and byte range, and the bytes (https://huggingface.co/docs/safetensors).
//
// The file is mapped, so opening it costs nothing per tensor and tensors that are never looked at
// are never read. A file that becomes shorter under its mapping ends the process that looks at what
// is gone, so what is in it is read with ReadTensor.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/data/mapped_file.h"
#include "common/graph/tensor.h"

namespace stagewright {

// A tensor inside a mapped file: valid while the file is.
struct TensorView {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  // Row-major; not necessarily aligned.
  // The file that `data` is mapped from; null: it is plain memory.
  const MappedFile* file = nullptr;
};

// Copies the bytes of the tensor to `out`, which has as many. DATA_LOSS names a file that cannot be
// read or has become shorter since it was opened.
absl::Status ReadTensor(const TensorView& tensor, std::span<std::byte> out);

class SafetensorsFile {
 public:
  // NOT_FOUND or PERMISSION_DENIED if the file cannot be opened; INVALID_ARGUMENT, naming file and
  // tensor, unless: the header fits in the file and is valid JSON; every tensor has a known type, a
  // shape that does not overflow and exactly the bytes that it needs; and the tensors fill the file
  // without overlap or gap. O(header).
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<TensorView>& tensors() const { return tensors_; }  // By name.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // What the tensors lie in: who holds it may use them without the file.
  const std::shared_ptr<const MappedFile>& mapping() const { return mapping_; }

  // Null if there is none of that name. O(log n).
  const TensorView* Find(const std::string& name) const;

 private:
  std::string path_;
  std::shared_ptr<const MappedFile> mapping_;
  std::vector<TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

// "float32[8, 16]", for messages.
std::string Describe(DType dtype, const std::vector<int64_t>& shape);

// The name of a type in the header ("F32"), and back.
std::string SafetensorsName(DType dtype);
absl::StatusOr<DType> ParseSafetensorsName(const std::string& name);

}  // namespace stagewright
