#include "common/rewrite/vocabulary_embedding.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rewrite/vocabulary.h"

namespace stagewright {
namespace {

// embedding(table, words, padding_idx, scale_grad_by_freq, sparse).
constexpr size_t kTable = 0, kWords = 1, kPadding = 2, kScale = 3;
constexpr int64_t kNoPadding = -1;

TensorMeta MetaOf(const Graph& graph, const Argument& argument) {
  if (const auto* value = std::get_if<ValueRef>(&argument.value)) return graph.meta(*value);
  return graph.input(std::get<InputId>(argument.value)).meta;
}

// The word whose row gets no gradient, by its number in the part.
int64_t PaddingIn(const Node& node, const WordRange& range) {
  if (node.args.size() <= kPadding) return kNoPadding;
  const auto* padding = std::get_if<SymInt>(&node.args[kPadding].value);
  if (padding == nullptr || padding->offset < range.begin ||
      padding->offset >= range.begin + range.size)
    return kNoPadding;
  return padding->offset - range.begin;
}

bool ScalesGradients(const Node& node) {
  if (!node.kwargs.empty()) return true;  // Unknown ones.
  if (node.args.size() <= kScale) return false;
  const auto* scales = std::get_if<bool>(&node.args[kScale].value);
  return scales == nullptr || *scales;
}

}  // namespace

absl::StatusOr<std::vector<NodeId>> AddEmbeddingsOfWords(const Graph& graph, NodeId id,
                                                         const std::vector<ParameterId>& slices,
                                                         GraphEdit& edit) {
  const Node node = graph.node(id);
  if (ScalesGradients(node)) {
    return absl::InvalidArgumentError(
        absl::StrCat("node \"", node.name, "\" cannot be cut: it scales gradients by how often a ",
                     "word is there, which no part of its table knows"));
  }
  const TensorMeta words = MetaOf(graph, node.args[kWords]);
  const auto parts = static_cast<int32_t>(slices.size());
  const int64_t size =
      graph.parameter(std::get<ParameterId>(node.args[kTable].value)).shape[0] / parts;
  std::vector<NodeId> embedded;
  for (int32_t i = 0; i < parts; ++i) {
    const WordRange range{i, parts, i * size, size};
    const std::string name = PartName(node.name, i, parts);
    const LocalWords local =
        AddLocalWords(absl::StrCat(name, "."), node.module, node.args[kWords], words, range, edit);
    Node rows = node;
    rows.name = absl::StrCat(name, ".rows");
    rows.args = {{slices[i]}, {ValueRef{local.index, 0}}, {SymInt{0, PaddingIn(node, range)}}};
    const NodeId found = edit.Add(std::move(rows));
    edit.ReadsSlices(found);
    Node column = node;
    column.name = absl::StrCat(name, ".column");
    column.target = "aten.unsqueeze.default";
    column.args = {{ValueRef{local.outside, 0}}, {SymInt{0, -1}}};
    column.outputs = {words};
    column.outputs.front().dtype = DType::kBool;
    column.outputs.front().shape.push_back({0, 1});
    const NodeId outside = edit.Add(std::move(column));
    Node own = node;
    own.name = name;
    own.target = "aten.masked_fill.Scalar";
    own.args = {{ValueRef{found, 0}}, {ValueRef{outside, 0}}, {SymInt{0, 0}}};
    embedded.push_back(edit.Add(std::move(own)));
  }
  return embedded;
}

}  // namespace stagewright
