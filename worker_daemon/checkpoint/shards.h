// A checkpoint on its way to one file: every device writes the parameters it owns as a shard, and
// the shards are merged into a `.safetensors` file with the names of the original module, which
// plain PyTorch loads. No LibTorch here.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/data/safetensors.h"
#include "common/graph/graph.h"

namespace stagewright {

// The bytes of a parameter, row-major in host memory.
struct ParameterBytes {
  ParameterId id;
  std::span<const std::byte> data;
};

inline constexpr char kShardPrefix[] = "shard-";

// Where the shard of a device lies: "shard-00003.safetensors" in `directory`.
std::string ShardPath(const std::string& directory, DeviceId device);

// Writes parameters under their name and all aliases, and `others` under theirs, atomically. Those
// of the graph among them get their aliases, too. Errors of WriteSafetensors.
absl::Status WriteShard(const Graph& graph, const std::vector<ParameterBytes>& parameters,
                        const std::vector<TensorView>& others, const std::string& path);

// Merges `shards` into the file `path`, atomically; slices become the tensors that they are of.
// Every parameter of the graph but its constants must be in exactly one shard or, if no shard has
// it, in `original`, the weights that the job began with; other tensors of `original` are kept as
// they are. `original` may be empty: no such file. INVALID_ARGUMENT, naming tensor and file, if a
// parameter is in two shards, is missing, or has another type or shape than the graph says; errors
// of SafetensorsFile::Open and WriteSafetensors.
absl::Status MergeShards(const Graph& graph, const std::vector<std::string>& shards,
                         const std::string& original, const std::string& path);

}  // namespace stagewright
