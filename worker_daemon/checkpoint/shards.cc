#include "worker_daemon/checkpoint/shards.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/data/safetensors_writer.h"
#include "common/data/sliced_tensors.h"
#include "worker_daemon/checkpoint/slices.h"

namespace stagewright {
namespace {

// Puts the tensors of which there are slices in the place of these.
absl::Status Join(const Graph& graph, std::map<std::string, TensorView>& tensors,
                  std::vector<OwnedTensor>& joined) {
  for (const SlicedTensor& sliced : SlicedTensors(graph)) {
    std::vector<TensorView> slices;
    for (const std::string& name : sliced.slices) {
      if (const auto found = tensors.find(name); found != tensors.end()) {
        slices.push_back(found->second);
        tensors.erase(found);
      }
    }
    if (slices.empty()) continue;  // They are as they were.
    if (slices.size() < sliced.slices.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no shard has all parts of parameter \"", sliced.names.front(), "\""));
    }
    ASSIGN_OR_RETURN(OwnedTensor whole, JoinSlices(sliced.names.front(), slices, sliced.dim));
    joined.push_back(std::move(whole));
    for (const std::string& name : sliced.names) {
      tensors[name] = joined.back().view();
      tensors[name].name = name;
    }
  }
  return absl::OkStatus();
}

absl::Status CheckComplete(const Graph& graph, const std::map<std::string, TensorView>& tensors,
                           const std::string& path) {
  for (const Parameter& own : graph.parameters()) {
    const Parameter parameter = StoredTensor(own);
    if (parameter.data.has_value()) continue;
    bool found = false;
    for (const std::string& name : NamesOf(parameter)) {
      const auto tensor = tensors.find(name);
      if (tensor == tensors.end()) continue;
      found = true;
      if (tensor->second.dtype != parameter.dtype || tensor->second.shape != parameter.shape) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": tensor \"", name, "\" is ",
                         Describe(tensor->second.dtype, tensor->second.shape), ", the graph says ",
                         Describe(parameter.dtype, parameter.shape)));
      }
    }
    if (!found) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": no shard has parameter \"", parameter.name, "\""));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string ShardPath(const std::string& directory, DeviceId device) {
  const std::string name = absl::StrFormat("%s%05d.safetensors", kShardPrefix, device.value());
  return (std::filesystem::path(directory) / name).string();
}

absl::Status WriteShard(const Graph& graph, const std::vector<ParameterBytes>& parameters,
                        const std::vector<TensorView>& others, const std::string& path) {
  std::vector<TensorView> tensors;
  for (const ParameterBytes& bytes : parameters) {
    const Parameter& parameter = graph.parameter(bytes.id);
    for (const std::string& name : NamesOf(parameter)) {
      tensors.push_back({name, parameter.dtype, parameter.shape, bytes.data});
    }
  }
  for (const TensorView& other : others) {
    const auto parameter =
        std::find_if(graph.parameters().begin(), graph.parameters().end(),
                     [&](const Parameter& candidate) { return candidate.name == other.name; });
    tensors.push_back(other);
    if (parameter == graph.parameters().end()) continue;
    for (const std::string& alias : parameter->aliases)
      tensors.push_back({alias, other.dtype, other.shape, other.data});
  }
  return WriteSafetensors(path, std::move(tensors), {{"format", "pt"}});
}

absl::Status MergeShards(const Graph& graph, const std::vector<std::string>& shards,
                         const std::string& original, const std::string& path) {
  std::vector<SafetensorsFile> files;  // Keep the tensors' memory.
  std::map<std::string, TensorView> tensors;
  std::map<std::string, std::string> shard_of;
  for (const std::string& shard : shards) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(shard));
    for (const TensorView& tensor : file.tensors()) {
      const auto [other, inserted] = shard_of.emplace(tensor.name, shard);
      if (!inserted) {
        return absl::InvalidArgumentError(
            absl::StrCat(shard, ": tensor \"", tensor.name, "\" is in ", other->second, ", too"));
      }
      tensors[tensor.name] = tensor;
    }
    files.push_back(std::move(file));
  }
  std::vector<OwnedTensor> joined;
  RETURN_IF_ERROR(Join(graph, tensors, joined));
  if (!original.empty()) {
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(original));
    for (const TensorView& tensor : file.tensors()) tensors.emplace(tensor.name, tensor);
    files.push_back(std::move(file));
  }
  RETURN_IF_ERROR(CheckComplete(graph, tensors, path));
  std::vector<TensorView> all;
  for (auto& [name, tensor] : tensors) all.push_back(std::move(tensor));
  return WriteSafetensors(path, std::move(all), {{"format", "pt"}});
}

}  // namespace stagewright
