// Reading `.safetensors` files: a header (safetensors_header.h) and the tensors' bytes.
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
#include "common/data/safetensors_header.h"
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
  // NOT_FOUND or PERMISSION_DENIED if the file cannot be opened; errors of ReadSafetensorsHeader.
  // O(header).
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return header_.path; }
  const SafetensorsHeader& header() const { return header_; }
  const std::vector<TensorView>& tensors() const { return tensors_; }  // By name.
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  // What the tensors lie in: who holds it may use them without the file.
  const std::shared_ptr<const MappedFile>& mapping() const { return mapping_; }

  // Null if there is none of that name. O(log n).
  const TensorView* Find(const std::string& name) const;

 private:
  SafetensorsHeader header_;
  std::shared_ptr<const MappedFile> mapping_;
  std::vector<TensorView> tensors_;  // Parallel to the header's.
};

}  // namespace stagewright
