// The header of the `.safetensors` format: an 8-byte little-endian length and a JSON object that
// maps names to type, shape and byte range (https://huggingface.co/docs/safetensors).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/graph/tensor.h"

namespace stagewright {

// A tensor and where its bytes are, counted from the end of the header.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::string path;                       // The file, for messages.
  uint64_t bytes = 0;                     // Where the tensors' bytes begin.
  std::vector<SafetensorsEntry> tensors;  // By name.
  std::map<std::string, std::string> metadata;

  // Null if there is none of that name. O(log n).
  const SafetensorsEntry* Find(const std::string& name) const;
};

// Reads all of `out` from `offset` on.
using RangeReader = std::function<absl::Status(uint64_t offset, std::span<std::byte> out)>;

// INVALID_ARGUMENT, naming `path` and tensor, unless: the header fits in the `size` bytes and is
// valid JSON; every tensor has a known type, a shape that does not overflow and exactly the bytes
// that it needs; and the tensors fill the file without overlap or gap. Errors of `read`. O(header).
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const std::string& path, uint64_t size,
                                                        const RangeReader& read);

// What stands before tensors that lie one after the other in this order: length and JSON, padded so
// that they start aligned.
std::string SafetensorsHeaderText(const std::vector<SafetensorsEntry>& tensors,
                                  const std::map<std::string, std::string>& metadata);

// "float32[8, 16]", for messages.
std::string Describe(DType dtype, const std::vector<int64_t>& shape);

// The name of a type in the header ("F32"), and back.
std::string SafetensorsName(DType dtype);
absl::StatusOr<DType> ParseSafetensorsName(const std::string& name);

}  // namespace stagewright
