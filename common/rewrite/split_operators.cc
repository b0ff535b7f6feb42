#include "common/rewrite/split_operators.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rewrite/carried.h"
#include "common/rewrite/graph_edit.h"
#include "common/rewrite/joint_layers.h"
#include "common/rewrite/matrix_operand.h"
#include "common/rewrite/operator_cut.h"
#include "common/rewrite/split_decisions.h"
#include "common/rewrite/split_profile.h"
#include "common/rewrite/taken.h"
#include "common/rewrite/vocabulary_embedding.h"
#include "common/rewrite/vocabulary_loss.h"

namespace stagewright {
namespace {

class Splitter {
 public:
  Splitter(const Graph& graph, const std::map<NodeId, int32_t>& asked)
      : graph_(graph), decisions_(graph, asked), edit_(graph) {}

  absl::StatusOr<Graph> Run() {
    if (decisions_.drops_prediction()) edit_.DropPrediction();
    for (const int32_t v : graph_.dag().order()) {
      const NodeId id(v);
      if (decisions_.of(id).has_value()) RETURN_IF_ERROR(Emit(id, *decisions_.of(id)));
    }
    return std::move(edit_).Finish();
  }

 private:
  absl::Status Emit(NodeId id, const Split& split) {
    const Node& node = graph_.node(id);
    switch (split.form) {
      case SplitForm::kProfile:
        SplitProfiledNode(graph_, id, split.parts.parts, edit_);
        return absl::OkStatus();
      case SplitForm::kLoss:
        ReplaceVocabularyLoss(graph_, id, PartsRead(node.args[0]), edit_);
        return absl::OkStatus();
      case SplitForm::kColumns: {
        ASSIGN_OR_RETURN(std::vector<Node> parts, Columns(id, split.parts));
        Place(id, split.parts, std::move(parts), /*slices=*/true);
        return absl::OkStatus();
      }
      case SplitForm::kCarried:
        Place(id, split.parts, Carried(id, split.parts), /*slices=*/false);
        return absl::OkStatus();
      case SplitForm::kTaken:
        Take(id, split.parts);
        return absl::OkStatus();
      case SplitForm::kRows:
        return AddRows(id, split.parts);
      case SplitForm::kWords:
        return AddWords(id, split.parts.parts);
    }
    return absl::InternalError("unknown form");
  }

  const std::vector<NodeId>& PartsRead(const Argument& argument) const {
    return parts_.at(std::get<ValueRef>(argument.value).node);
  }

  absl::StatusOr<std::vector<Node>> Columns(NodeId id, const InParts& result) {
    const Node& node = graph_.node(id);
    const MatrixOperand matrix = *MatrixOf(graph_, id);
    ASSIGN_OR_RETURN(const auto weights, edit_.Slices(matrix.weight, matrix.out_dim, result.parts));
    std::vector<ParameterId> biases;
    if (matrix.added.has_value()) {
      ASSIGN_OR_RETURN(biases, edit_.Slices(*matrix.added, 0, result.parts));
    }
    std::vector<Node> parts;
    for (int32_t i = 0; i < result.parts; ++i) {
      Node part = node;
      part.args[matrix.matrix].value = weights[i];
      if (matrix.added.has_value()) part.args[*matrix.bias].value = biases[i];
      part.outputs.front() = MetaOfPart(node.outputs.front(), result);
      parts.push_back(std::move(part));
    }
    return parts;
  }

  std::vector<Node> Carried(NodeId id, const InParts& result) const {
    std::vector<Node> parts(result.parts, WithSizesOfPart(graph_, id, result));
    for (int32_t i = 0; i < result.parts; ++i) {
      for (Argument& argument : parts[i].args) {
        if (decisions_.PartsOfArgument(argument).has_value())
          argument.value = ValueRef{PartsRead(argument)[i], 0};
      }
    }
    return parts;
  }

  // Puts the parts of a node into the graph and, where they are read joined, what joins them.
  void Place(NodeId id, const InParts& result, std::vector<Node> parts, bool slices) {
    const bool joined = decisions_.IsJoined(id);
    const Node node = graph_.node(id);
    Argument::List list;
    std::vector<NodeId>& ids = parts_[id];
    for (int32_t i = 0; i < result.parts; ++i) {
      parts[i].name = PartName(node.name, i, result.parts);
      if (i == 0 && !joined) {
        edit_.Replace(id, std::move(parts[i]));
        ids.push_back(id);
      } else {
        ids.push_back(edit_.Add(std::move(parts[i])));
      }
      if (slices) edit_.ReadsSlices(ids.back());
      list.push_back({ValueRef{ids.back(), 0}});
    }
    if (!joined) return;
    Node join = node;
    join.target = "aten.cat.default";
    join.args = {{std::move(list)}, {SymInt{0, result.dim}}};
    join.kwargs.clear();
    edit_.Replace(id, std::move(join));
  }

  // Each output is a part of what is read.
  void Take(NodeId id, const InParts& read) {
    const auto taken =
        *TakenParts(graph_, id, [this](ValueRef value) { return decisions_.PartsOfValue(value); });
    const std::vector<NodeId>& parts = PartsRead(graph_.node(id).args[0]);
    for (size_t k = 0; k < taken.size(); ++k) {
      const auto output = static_cast<int32_t>(k);
      Node node = TakenFrom(graph_, id, output, read, parts[taken[k]]);
      if (k == 0) {
        edit_.Replace(id, std::move(node));
      } else {
        edit_.Redirect({id, output}, {edit_.Add(std::move(node)), 0});
      }
    }
  }

  // A matrix by the features that go in. What is added once is added at the end.
  absl::Status AddRows(NodeId id, const InParts& read) {
    const Node& node = graph_.node(id);
    const MatrixOperand matrix = *MatrixOf(graph_, id);
    ASSIGN_OR_RETURN(const auto weights,
                     edit_.Slices(matrix.weight, 1 - matrix.out_dim, read.parts));
    const std::vector<NodeId>& inputs = PartsRead(node.args[matrix.input]);
    std::vector<NodeId> products;
    for (int32_t i = 0; i < read.parts; ++i) {
      Node part = node;
      part.name = PartName(node.name, i, read.parts);
      part.target = matrix.out_dim == 0 ? "aten.linear.default" : "aten.matmul.default";
      part.args = {{ValueRef{inputs[i], 0}}, {weights[i]}};
      part.kwargs.clear();
      products.push_back(edit_.Add(std::move(part)));
      edit_.ReadsSlices(products.back());
    }
    AddUp(id, products, matrix.added);
    return absl::OkStatus();
  }

  absl::Status AddWords(NodeId id, int32_t parts) {
    const MatrixOperand matrix = *MatrixOf(graph_, id);
    ASSIGN_OR_RETURN(const auto tables, edit_.Slices(matrix.weight, 0, parts));
    ASSIGN_OR_RETURN(const auto rows, AddEmbeddingsOfWords(graph_, id, tables, edit_));
    AddUp(id, rows, std::nullopt);
    return absl::OkStatus();
  }

  // Puts the sum of the parts, and of a vector, in the node's place.
  void AddUp(NodeId id, const std::vector<NodeId>& parts, std::optional<ParameterId> added) {
    const Node node = graph_.node(id);
    std::vector<Argument> terms;
    for (NodeId part : parts) terms.push_back({ValueRef{part, 0}});
    if (added.has_value()) terms.push_back({*added});
    Argument sum = terms[0];
    for (size_t i = 1; i + 1 < terms.size(); ++i) {
      const std::string name = absl::StrCat(node.name, ".sum", i);
      sum = {ValueRef{edit_.Add(Sum(node, name, std::move(sum), terms[i])), 0}};
    }
    edit_.Replace(id, Sum(node, node.name, std::move(sum), terms.back()));
  }

  static Node Sum(const Node& like, std::string name, Argument a, Argument b) {
    Node sum = like;
    sum.name = std::move(name);
    sum.target = "aten.add.Tensor";
    sum.args = {std::move(a), std::move(b)};
    sum.kwargs.clear();
    return sum;
  }

  const Graph& graph_;
  const SplitDecisions decisions_;
  GraphEdit edit_;
  std::map<NodeId, std::vector<NodeId>> parts_;  // By node that gives parts.
};

// With the other nodes whose matrix one of these reads: they can only be cut alike.
std::map<NodeId, int32_t> WithTied(const Graph& graph, const std::map<NodeId, int32_t>& asked) {
  std::map<NodeId, int32_t> all = asked;
  for (const auto& [node, parts] : asked) {
    const auto matrix = MatrixOf(graph, node);
    if (!matrix.has_value()) continue;
    for (NodeId tied : NodesOfMatrix(graph, matrix->weight)) all.emplace(tied, parts);
  }
  return all;
}

// Cuts joint layers into the layers that they are; `asked` names these instead from then on.
absl::StatusOr<Graph> WithoutJointLayers(const Graph& graph, std::map<NodeId, int32_t>& asked) {
  std::map<NodeId, int32_t> joint;
  std::map<std::string, int32_t> layers;  // By name.
  for (const auto& [node, parts] : asked) {
    const int32_t count = JointLayers(graph, node, parts);
    if (count == 1) continue;
    joint.emplace(node, count);
    for (int32_t i = 0; i < count; ++i)
      layers.emplace(PartName(graph.node(node).name, i, count), parts);
  }
  if (joint.empty()) return graph;
  ASSIGN_OR_RETURN(Graph apart, Splitter(graph, joint).Run());
  for (const auto& [node, count] : joint) asked.erase(node);
  for (const auto& [name, parts] : layers) {
    ASSIGN_OR_RETURN(const NodeId node, NodeToCut(apart, name));
    asked.emplace(node, parts);
  }
  return apart;
}

}  // namespace

absl::StatusOr<Graph> SplitOperators(const Graph& graph, const std::vector<OperatorSplit>& splits) {
  std::map<NodeId, int32_t> asked;
  for (const OperatorSplit& split : splits) {
    ASSIGN_OR_RETURN(const NodeId node, NodeToCut(graph, split.node));
    ASSIGN_OR_RETURN(const OperatorCut cut, CutOf(graph, node));
    RETURN_IF_ERROR(CheckParts(graph, node, cut, split.parts));
    if (!asked.emplace(node, split.parts).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("node \"", graph.node(node).name, "\" is given twice"));
    }
  }
  asked = WithTied(graph, asked);
  ASSIGN_OR_RETURN(const Graph apart, WithoutJointLayers(graph, asked));
  return Splitter(apart, asked).Run();
}

absl::StatusOr<std::vector<Graph>> SplitOperators(const std::vector<Graph>& graphs,
                                                  const std::vector<OperatorSplit>& splits) {
  std::vector<Graph> split;
  for (const Graph& graph : graphs) {
    ASSIGN_OR_RETURN(Graph one, SplitOperators(graph, splits));
    split.push_back(std::move(one));
  }
  return split;
}

}  // namespace stagewright
