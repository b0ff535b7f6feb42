#include "common/data/dataset.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/data/data_files.h"
#include "common/data/input_files.h"

namespace stagewright {

absl::Status Dataset::AddInput(const Input& input, const std::string& path, Wanted wanted,
                               InputFiles& opened, InputData& data) {
  ASSIGN_OR_RETURN(const std::vector<std::string> files, DataFilesOf(path, input.name));
  data.name = input.name;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const InputFiles::Found found, opened.Open(file, input));
    const TensorView& tensor = found.tensor;
    const int64_t end = data.samples + found.samples;
    RETURN_IF_ERROR(opened.CheckSamples(file, input.name, found.samples));
    if (HasShapeOf(tensor, input.meta)) {
      data.sample_bytes = static_cast<Bytes>(tensor.data.size()) / found.samples;
      const std::byte* begin = found.file->bytes().data();
      const auto offset = static_cast<size_t>(tensor.data.data() - begin);
      data.shards.push_back({data.samples, found.samples, found.file, offset});
    } else if (wanted.lengths == nullptr || wanted.lengths->Has(wanted.length, data.samples, end)) {
      return absl::InvalidArgumentError(absl::StrCat(NameInFile(file, input.name), " is ",
                                                     Describe(tensor.dtype, tensor.shape),
                                                     ", the graph wants ", Expected(input.meta)));
    }
    data.samples = end;
  }
  return absl::OkStatus();
}

absl::StatusOr<Dataset> Dataset::Open(const Graph& graph, const std::vector<InputId>& needed,
                                      const std::string& path) {
  return OpenWanted(graph, needed, path, {});
}

absl::StatusOr<Dataset> Dataset::Open(const Graph& graph, const std::vector<InputId>& needed,
                                      const std::string& path, const SampleLengths& lengths,
                                      int32_t length) {
  return OpenWanted(graph, needed, path, {&lengths, length});
}

absl::StatusOr<Dataset> Dataset::OpenWanted(const Graph& graph, const std::vector<InputId>& needed,
                                            const std::string& path, Wanted wanted) {
  Dataset dataset;
  InputFiles opened;
  dataset.check_ = IndexCheck(graph);
  dataset.inputs_.resize(graph.inputs().size());
  std::string first;  // The input that told the number of samples.
  for (InputId id : needed) {
    const Input& input = graph.input(id);
    InputData& data = dataset.inputs_[id.index()];
    RETURN_IF_ERROR(AddInput(input, path, wanted, opened, data));
    if (first.empty()) {
      first = input.name;
      dataset.samples_ = data.samples;
    } else if (data.samples != dataset.samples_) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": \"", input.name, "\" has ",
                                                     data.samples, " samples, \"", first, "\" has ",
                                                     dataset.samples_));
    }
  }
  dataset.mappings_ = opened.TakeMappings();
  return dataset;
}

Dataset Dataset::OfRows(const Graph& graph, std::shared_ptr<const MappedFile> file,
                        int64_t samples) {
  CHECK(graph.inputs().size() == 1 && samples > 0);
  Dataset dataset;
  dataset.check_ = IndexCheck(graph);
  dataset.samples_ = samples;
  dataset.inputs_.push_back({{{0, samples, file.get(), 0}},
                             static_cast<Bytes>(file->bytes().size()) / samples,
                             samples,
                             graph.inputs()[0].name});
  dataset.mappings_.push_back(std::move(file));
  return dataset;
}

absl::StatusOr<int64_t> Dataset::CountSamples(const Graph& graph, const std::string& path) {
  absl::Status status;
  for (const Input& input : graph.inputs()) {
    InputFiles opened;
    InputData data;
    status = AddInput(input, path, {}, opened, data);
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
  return absl::StrCat(NameInFile(shard.file->path(), inputs_[input.index()].name), ": sample ",
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
