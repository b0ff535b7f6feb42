#include "common/data/safetensors_writer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/atomic_file.h"

namespace stagewright {
namespace {

absl::Status CheckTensors(const std::string& path, const std::vector<TensorView>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& tensor = tensors[i];
    if (tensor.name.empty() || tensor.name == "__metadata__" ||
        (i > 0 && tensors[i - 1].name == tensor.name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": tensor \"", tensor.name, "\": the name is empty, reserved or used twice"));
    }
    auto bytes = static_cast<uint64_t>(SizeOf(tensor.dtype));
    for (int64_t dim : tensor.shape) bytes *= static_cast<uint64_t>(dim);
    if (bytes != tensor.data.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": tensor \"", tensor.name, "\": ", Describe(tensor.dtype, tensor.shape), " needs ",
          bytes, " bytes, not ", tensor.data.size()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path, std::vector<TensorView> tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  RETURN_IF_ERROR(CheckTensors(path, tensors));
  std::vector<SafetensorsEntry> entries;
  uint64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    entries.push_back(
        {tensor.name, tensor.dtype, tensor.shape, offset, offset + tensor.data.size()});
    offset += tensor.data.size();
  }
  const std::string header = SafetensorsHeaderText(entries, metadata);
  std::vector<std::span<const std::byte>> pieces = {std::as_bytes(std::span(header))};
  for (const TensorView& tensor : tensors) pieces.push_back(tensor.data);
  return WriteAtomically(path, pieces);
}

}  // namespace stagewright
