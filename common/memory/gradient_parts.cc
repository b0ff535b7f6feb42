#include "common/memory/gradient_parts.h"

#include <algorithm>
#include <map>

namespace stagewright {
namespace {

constexpr Bytes kPartBytes = Bytes{1 << 20};

}  // namespace

std::vector<std::vector<ParameterId>> GradientParts(const Graph& graph,
                                                    const std::vector<ParameterId>& parameters) {
  std::map<DType, std::vector<ParameterId>> types;
  for (ParameterId id : parameters) types[graph.parameter(id).dtype].push_back(id);
  std::vector<std::vector<ParameterId>> parts;
  for (const auto& [type, ids] : types) {
    Bytes most = kPartBytes;
    for (ParameterId id : ids) most = std::max(most, graph.parameter(id).SizeBytes());
    parts.emplace_back();
    Bytes bytes = 0;
    for (ParameterId id : ids) {
      const Bytes own = graph.parameter(id).SizeBytes();
      if (bytes + own > most) {
        parts.emplace_back();
        bytes = 0;
      }
      parts.back().push_back(id);
      bytes += own;
    }
  }
  return parts;
}

Bytes LargestGradientCopy(const Graph& graph, const std::vector<ParameterId>& parameters) {
  Bytes largest = 0;
  for (const std::vector<ParameterId>& part : GradientParts(graph, parameters)) {
    Bytes bytes = 0;
    for (ParameterId id : part) bytes += graph.parameter(id).SizeBytes();
    largest = std::max(largest, bytes);
  }
  return largest;
}

}  // namespace stagewright
