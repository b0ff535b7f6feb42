#include "common/data/safetensors_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/data/atomic_file.h"

namespace stagewright {
namespace {

constexpr size_t kAlignment = 8;

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

// Length and JSON, padded so that the data starts aligned.
std::string Header(const std::vector<TensorView>& tensors,
                   const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    nlohmann::ordered_json& entry = json[tensor.name];
    entry["dtype"] = SafetensorsName(tensor.dtype);
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {offset, offset + tensor.data.size()};
    offset += tensor.data.size();
  }
  std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  std::string header;
  for (int shift = 0; shift < 64; shift += 8) header += static_cast<char>(text.size() >> shift);
  return header + text;
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path, std::vector<TensorView> tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  RETURN_IF_ERROR(CheckTensors(path, tensors));
  const std::string header = Header(tensors, metadata);
  std::vector<std::span<const std::byte>> pieces = {std::as_bytes(std::span(header))};
  for (const TensorView& tensor : tensors) pieces.push_back(tensor.data);
  return WriteAtomically(path, pieces);
}

}  // namespace stagewright
