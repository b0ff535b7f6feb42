#include "worker_daemon/checkpoint/slices.h"

#include <map>

namespace stagewright {

std::vector<SlicedTensor> SlicedTensors(const Graph& graph) {
  std::map<std::string, std::map<int64_t, const Parameter*>> slices;
  for (const Parameter& parameter : graph.parameters()) {
    if (parameter.slice.has_value())
      slices[parameter.slice->whole][parameter.slice->begin] = &parameter;
  }
  std::vector<SlicedTensor> tensors;
  for (const auto& [name, parts] : slices) {
    const Parameter& first = *parts.begin()->second;
    SlicedTensor tensor{NamesOf(StoredTensor(first)), first.slice->dim, {}};
    for (const auto& [begin, part] : parts) tensor.slices.push_back(part->name);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

}  // namespace stagewright
