#include "common/rewrite/operator_cut.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/graph/aten.h"
#include "common/rewrite/matrix_operand.h"

namespace stagewright {
namespace {

constexpr int32_t kMostParts = 1024;

// A layer of a profile and where PyTorch prints how many features it gives: after a word, or as the
// second number.
struct Layer {
  absl::string_view name;
  absl::string_view word;
  const char* dimension;
};
constexpr Layer kLayers[] = {{"Linear", "out_features=", "out_features"},
                             {"Conv2d", "out_channels=", "out_channels"},
                             {"Embedding", "embedding_dim=", "embedding_dim"}};

int64_t NumberIn(absl::string_view arguments, absl::string_view word) {
  const std::vector<absl::string_view> items = absl::StrSplit(arguments, ',');
  int64_t number = 0;
  for (absl::string_view item : items) {
    const size_t at = item.find(word);
    if (at != absl::string_view::npos && absl::SimpleAtoi(item.substr(at + word.size()), &number))
      return number;
  }
  return items.size() > 1 && absl::SimpleAtoi(items[1], &number) ? number : 0;
}

std::string Called(const Node& node) {
  if (node.module.empty()) return absl::StrCat("node \"", node.name, "\"");
  return absl::StrCat("node \"", node.name, "\" (", node.module, ")");
}

absl::Status CannotBeCut(const Node& node, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(Called(node), " cannot be cut: ", why));
}

absl::StatusOr<OperatorCut> CutOfProfile(const Node& node) {
  if (node.cost->parameter_bytes == 0) return CannotBeCut(node, "it has no parameters");
  absl::string_view text = node.module.empty() ? node.name : node.module;
  const size_t open = text.find('(');
  if (open == absl::string_view::npos) return OperatorCut{"features", 0, false};
  const absl::string_view arguments = text.substr(open + 1, text.rfind(')') - open - 1);
  for (const Layer& layer : kLayers) {
    if (text.substr(0, open) != layer.name) continue;
    const int64_t size = NumberIn(arguments, layer.word);
    if (size > 0) return OperatorCut{layer.dimension, size, true};
  }
  return CannotBeCut(node, "the profile says that it is no Linear, Conv2d or Embedding");
}

bool IsTiedToLayer(const Graph& graph, ParameterId weight) {
  const std::vector<NodeId> readers = NodesOfMatrix(graph, weight);
  return std::any_of(readers.begin(), readers.end(),
                     [&](NodeId id) { return !MatrixOf(graph, id)->embedding; });
}

}  // namespace

absl::StatusOr<OperatorCut> CutOf(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (node.cost.has_value()) return CutOfProfile(node);
  const std::optional<MatrixOperand> matrix = MatrixOf(graph, id);
  if (!matrix.has_value()) {
    return CannotBeCut(node, absl::StrCat(node.target,
                                          " is no linear layer or embedding with a parameter of "
                                          "its own"));
  }
  const std::vector<int64_t>& shape = graph.parameter(matrix->weight).shape;
  if (!matrix->embedding) return OperatorCut{"out_features", shape[matrix->out_dim], true};
  if (IsTiedToLayer(graph, matrix->weight)) return OperatorCut{"num_embeddings", shape[0], true};
  return OperatorCut{"embedding_dim", shape[1], true};
}

absl::Status CheckParts(const Graph& graph, NodeId id, const OperatorCut& cut, int32_t parts) {
  const Node& node = graph.node(id);
  if (parts < 2 || parts > kMostParts) {
    return absl::InvalidArgumentError(
        absl::StrCat(Called(node), ": ", parts, " is no number of parts from 2 to ", kMostParts));
  }
  if (cut.size == 0 || cut.size % parts == 0) return absl::OkStatus();
  std::vector<int64_t> near;
  for (int64_t below = parts - 1; below >= 2 && near.empty(); --below) {
    if (cut.size % below == 0) near.push_back(below);
  }
  for (int64_t above = parts + 1; above <= cut.size; ++above) {
    if (cut.size % above != 0) continue;
    near.push_back(above);
    break;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      Called(node), ": ", parts, " parts do not divide ", cut.dimension, " = ", cut.size,
      near.empty() ? "; nothing does" : "; near by do ", absl::StrJoin(near, " and ")));
}

absl::StatusOr<NodeId> NodeToCut(const Graph& graph, const std::string& name) {
  std::vector<NodeId> found;
  bool module = false;
  for (int32_t v = 0; v < graph.size(); ++v) {
    const Node& node = graph.node(NodeId(v));
    if (node.name == name) return NodeId(v);
    if (node.module != name) continue;
    module = true;
    if (CutOf(graph, NodeId(v)).ok()) found.emplace_back(v);
  }
  if (found.size() == 1) return found.front();
  if (found.size() > 1) {
    const std::string names = absl::StrJoin(found, ", ", [&](std::string* out, NodeId id) {
      absl::StrAppend(out, "\"", graph.node(id).name, "\"");
    });
    return absl::InvalidArgumentError(
        absl::StrCat("module \"", name, "\" has several nodes that can be cut: ", names));
  }
  if (module)
    return absl::InvalidArgumentError(
        absl::StrCat("module \"", name, "\" has no node that can be cut"));
  return absl::InvalidArgumentError(absl::StrCat("there is no node or module \"", name, "\""));
}

}  // namespace stagewright
