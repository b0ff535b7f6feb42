#include "common/data/dataset.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/data/data_files.h"
#include "common/data/npy.h"

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

bool IsNpy(const std::string& path) { return absl::EndsWith(path, ".npy"); }

// The samples of the input in the file, for messages.
std::string NameIn(const std::string& path, const std::string& input) {
  return absl::StrCat(path, IsNpy(path) ? ": the array for \"" : ": tensor \"", input, "\"");
}

}  // namespace

// What one call of Open has opened, so that inputs share files.
class Dataset::Opener {
 public:
  struct Found {
    TensorView tensor;
    const MappedFile* file = nullptr;
  };

  // The samples of the input in the file.
  absl::StatusOr<Found> Tensor(const std::string& path, const Input& input) {
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

  // The inputs of a file have the same number of samples.
  absl::Status CheckSamples(const std::string& path, const std::string& input, int64_t samples) {
    const auto& [first, expected] = samples_.try_emplace(path, input, samples).first->second;
    if (samples == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(path, ": tensor \"", input, "\" has ", samples,
                                                   " samples, \"", first, "\" has ", expected));
  }

  std::vector<std::shared_ptr<const MappedFile>> TakeMappings() { return std::move(mappings_); }

 private:
  std::map<std::string, SafetensorsFile> files_;
  std::map<std::string, std::pair<std::string, int64_t>> samples_;  // By path: input, how many.
  std::vector<std::shared_ptr<const MappedFile>> mappings_;
};

absl::Status Dataset::AddInput(const Input& input, const std::string& path, Opener& opener,
                               InputData& data) {
  ASSIGN_OR_RETURN(const std::vector<std::string> files, DataFilesOf(path, input.name));
  data.name = input.name;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const Opener::Found found, opener.Tensor(file, input));
    const TensorView& tensor = found.tensor;
    const std::string name = NameIn(file, input.name);
    if (!HasShapeOf(tensor, input.meta)) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is ",
                                                     Describe(tensor.dtype, tensor.shape),
                                                     ", the graph wants ", Expected(input.meta)));
    }
    const int64_t samples = tensor.shape[0] / input.meta.shape[0].scale;
    if (samples == 0) return absl::InvalidArgumentError(absl::StrCat(name, " holds no sample"));
    RETURN_IF_ERROR(opener.CheckSamples(file, input.name, samples));
    data.sample_bytes = static_cast<Bytes>(tensor.data.size()) / samples;
    const std::byte* begin = found.file->bytes().data();
    const auto offset = static_cast<size_t>(tensor.data.data() - begin);
    data.shards.push_back({data.samples, samples, found.file, offset});
    data.samples += samples;
  }
  return absl::OkStatus();
}

absl::StatusOr<Dataset> Dataset::Open(const Graph& graph, const std::vector<InputId>& needed,
                                      const std::string& path) {
  Dataset dataset;
  Opener opener;
  dataset.check_ = IndexCheck(graph);
  dataset.inputs_.resize(graph.inputs().size());
  std::string first;  // The input that told the number of samples.
  for (InputId id : needed) {
    const Input& input = graph.input(id);
    InputData& data = dataset.inputs_[id.index()];
    RETURN_IF_ERROR(AddInput(input, path, opener, data));
    if (first.empty()) {
      first = input.name;
      dataset.samples_ = data.samples;
    } else if (data.samples != dataset.samples_) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": \"", input.name, "\" has ",
                                                     data.samples, " samples, \"", first, "\" has ",
                                                     dataset.samples_));
    }
  }
  dataset.mappings_ = opener.TakeMappings();
  return dataset;
}

absl::StatusOr<int64_t> Dataset::CountSamples(const Graph& graph, const std::string& path) {
  absl::Status status;
  for (const Input& input : graph.inputs()) {
    Opener opener;
    InputData data;
    status = AddInput(input, path, opener, data);
    if (status.ok()) return data.samples;
    if (!absl::IsNotFound(status)) return status;
  }
  if (status.ok() || graph.inputs().size() > 1) {
    return absl::NotFoundError(absl::StrCat(path,
                                            ": there is no tensor named as an input of the graph",
                                            status.ok() ? "" : "; ", status.message()));
  }
  return status;
}

absl::Status Dataset::Gather(InputId input, std::span<const int64_t> indices,
                             std::byte* out) const {
  const InputData& source = inputs_[input.index()];
  CHECK(!source.shards.empty());
  const auto sample_bytes = static_cast<size_t>(source.sample_bytes);
  for (size_t i = 0; i < indices.size();) {
    const int64_t first = indices[i];
    const Shard& shard = ShardOf(input, first);
    // As many as follow each other in the file, too.
    size_t count = 1;
    while (i + count < indices.size() && indices[i + count] == indices[i + count - 1] + 1 &&
           indices[i + count] < shard.first + shard.samples)
      ++count;
    const size_t offset = shard.offset + static_cast<size_t>(first - shard.first) * sample_bytes;
    RETURN_IF_ERROR(shard.file->Read(offset, {out, count * sample_bytes}));
    const IndexCheck::Finding finding = check_.Check(input, static_cast<int64_t>(count), out);
    if (!finding.what.empty()) {
      return absl::OutOfRangeError(
          absl::StrCat(NameOf(input, first + finding.sample), " ", finding.what));
    }
    out += count * sample_bytes;
    i += count;
  }
  return absl::OkStatus();
}

std::string Dataset::NameOf(InputId input, int64_t index) const {
  const Shard& shard = ShardOf(input, index);
  return absl::StrCat(NameIn(shard.file->path(), inputs_[input.index()].name), ": sample ",
                      index - shard.first);
}

const Dataset::Shard& Dataset::ShardOf(InputId input, int64_t index) const {
  const std::vector<Shard>& shards = inputs_[input.index()].shards;
  const auto after =
      std::upper_bound(shards.begin(), shards.end(), index,
                       [](int64_t i, const Shard& shard) { return i < shard.first; });
  return *(after - 1);
}

}  // namespace stagewright
