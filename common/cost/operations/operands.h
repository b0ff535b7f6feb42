// Tensors among the arguments of nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "common/graph/graph.h"

namespace stagewright {

// The tensor that an argument stands for; nothing for scalars and lists.
inline std::optional<TensorMeta> TensorOf(const Graph& graph, const Argument& argument) {
  if (const auto* value = std::get_if<ValueRef>(&argument.value)) return graph.meta(*value);
  if (const auto* input = std::get_if<InputId>(&argument.value)) return graph.input(*input).meta;
  if (const auto* total = std::get_if<TotalId>(&argument.value)) return graph.meta(*total);
  if (const auto* id = std::get_if<ParameterId>(&argument.value)) {
    const Parameter& parameter = graph.parameter(*id);
    TensorMeta meta{parameter.dtype, {}};
    for (int64_t dim : parameter.shape) meta.shape.push_back({0, dim});
    return meta;
  }
  return std::nullopt;
}

inline std::optional<TensorMeta> Operand(const Graph& graph, const Node& node, size_t index) {
  if (index >= node.args.size()) return std::nullopt;
  return TensorOf(graph, node.args[index]);
}

// All tensors of the arguments from number `first` on, those of lists included.
inline std::vector<TensorMeta> OperandsFrom(const Graph& graph, const Node& node, size_t first) {
  std::vector<TensorMeta> tensors;
  for (size_t i = first; i < node.args.size(); ++i) {
    ForEachLeaf(node.args[i], [&](const Argument& leaf) {
      if (auto tensor = TensorOf(graph, leaf)) tensors.push_back(*std::move(tensor));
    });
  }
  return tensors;
}

inline double Elements(const TensorMeta& meta, int64_t samples) {
  double product = 1;
  for (const SymInt& dim : meta.shape) product *= static_cast<double>(dim.At(samples));
  return product;
}

inline double OutputElements(const Node& node, int64_t samples) {
  double sum = 0;
  for (const TensorMeta& meta : node.outputs) sum += Elements(meta, samples);
  return sum;
}

}  // namespace stagewright
