#include "common/data/input_files.h"

#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/data/npy.h"

namespace stagewright {
namespace {

bool IsNpy(const std::string& path) { return absl::EndsWith(path, ".npy"); }

}  // namespace

// `meta` holds the samples of a batch along the first dimension, `scale` entries for each.
bool HasShapeOf(const TensorView& tensor, const TensorMeta& meta) {
  if (tensor.dtype != meta.dtype || tensor.shape.size() != meta.shape.size()) return false;
  if (tensor.shape[0] % meta.shape[0].scale != 0) return false;
  for (size_t i = 1; i < meta.shape.size(); ++i) {
    if (tensor.shape[i] != meta.shape[i].offset) return false;
  }
  return true;
}

std::string Expected(const TensorMeta& meta) {
  const std::string_view dtype = DTypeName(meta.dtype);
  std::string text =
      absl::StrCat(absl::string_view(dtype.data(), dtype.size()), "[",
                   meta.shape[0].scale == 1 ? std::string("samples")
                                            : absl::StrCat(meta.shape[0].scale, " * samples"));
  for (size_t i = 1; i < meta.shape.size(); ++i) absl::StrAppend(&text, ", ", meta.shape[i].offset);
  return text + "]";
}

std::string NameInFile(const std::string& path, const std::string& input) {
  return absl::StrCat(path, IsNpy(path) ? ": the array for \"" : ": tensor \"", input, "\"");
}

absl::StatusOr<InputFiles::Found> InputFiles::Tensor(const std::string& path, const Input& input) {
  if (IsNpy(path)) {
    ASSIGN_OR_RETURN(NpyFile file, NpyFile::Open(path));
    mappings_.push_back(std::move(file.mapping));
    return Found{file.array, mappings_.back().get()};
  }
  auto found = files_.find(path);
  if (found == files_.end()) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
    found = files_.emplace(path, std::move(file)).first;
    mappings_.push_back(found->second.mapping());
  }
  const TensorView* tensor = found->second.Find(input.name);
  if (tensor == nullptr) {
    return absl::NotFoundError(
        absl::StrCat(path, ": there is no tensor \"", input.name, "\", an input of the graph"));
  }
  return Found{*tensor, found->second.mapping().get()};
}

absl::StatusOr<InputFiles::Found> InputFiles::Open(const std::string& path, const Input& input) {
  ASSIGN_OR_RETURN(Found found, Tensor(path, input));
  const TensorView& tensor = found.tensor;
  const int64_t scale = input.meta.shape[0].scale;
  // Sizes beyond the first may be those of samples of another length.
  if (tensor.dtype != input.meta.dtype || tensor.shape.size() != input.meta.shape.size() ||
      tensor.shape[0] % scale != 0) {
    return absl::InvalidArgumentError(absl::StrCat(NameInFile(path, input.name), " is ",
                                                   Describe(tensor.dtype, tensor.shape),
                                                   ", the graph wants ", Expected(input.meta)));
  }
  found.samples = tensor.shape[0] / scale;
  if (found.samples == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameInFile(path, input.name), " holds no sample"));
  }
  return found;
}

absl::Status InputFiles::CheckSamples(const std::string& path, const std::string& input,
                                      int64_t samples) {
  const auto& [first, expected] = samples_.try_emplace(path, input, samples).first->second;
  if (samples == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": tensor \"", input, "\" has ", samples,
                                                 " samples, \"", first, "\" has ", expected));
}

}  // namespace stagewright
