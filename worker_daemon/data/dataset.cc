#include "worker_daemon/data/dataset.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagewright {
namespace {

// The shape of one sample as the data file has it: `meta` holds the samples of a batch along the
// first dimension, `scale` entries for each.
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

}  // namespace

absl::StatusOr<Dataset> Dataset::Open(const Graph& graph, const std::vector<InputId>& needed,
                                      const std::string& path) {
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  Dataset dataset(std::move(file));
  dataset.inputs_.resize(graph.inputs().size());
  std::string first;  // The input that told the number of samples.
  for (InputId id : needed) {
    const Input& input = graph.input(id);
    const TensorView* tensor = dataset.file_.Find(input.name);
    if (tensor == nullptr) {
      return absl::NotFoundError(
          absl::StrCat(path, ": there is no tensor \"", input.name, "\", an input of the graph"));
    }
    if (!HasShapeOf(*tensor, input.meta)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor \"", input.name, "\" is ",
                                                     Describe(tensor->dtype, tensor->shape),
                                                     ", the graph wants ", Expected(input.meta)));
    }
    const int64_t samples = tensor->shape[0] / input.meta.shape[0].scale;
    if (samples == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": tensor \"", input.name, "\" holds no sample"));
    }
    if (first.empty()) {
      first = input.name;
      dataset.samples_ = samples;
    } else if (samples != dataset.samples_) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor \"", input.name, "\" has ",
                                                     samples, " samples, \"", first, "\" has ",
                                                     dataset.samples_));
    }
    dataset.inputs_[id.index()] = {tensor->data.data(),
                                   static_cast<Bytes>(tensor->data.size()) / samples};
  }
  if (needed.empty()) {
    // The number of samples still decides where an epoch ends.
    std::vector<InputId> any;
    for (size_t i = 0; i < graph.inputs().size() && any.empty(); ++i) {
      if (dataset.file_.Find(graph.inputs()[i].name) != nullptr) any.emplace_back(i);
    }
    if (any.empty()) {
      return absl::NotFoundError(
          absl::StrCat(path, ": there is no tensor named as an input of the graph"));
    }
    return Open(graph, any, path);
  }
  return dataset;
}

void Dataset::Gather(InputId input, std::span<const int64_t> indices, std::byte* out) const {
  const InputData& source = inputs_[input.index()];
  CHECK(source.data != nullptr);
  for (int64_t index : indices) {
    std::memcpy(out, source.data + index * source.sample_bytes,
                static_cast<size_t>(source.sample_bytes));
    out += source.sample_bytes;
  }
}

}  // namespace stagewright
