#include "common/rewrite/split_operators.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rewrite/carried.h"
#include "common/rewrite/graph_edit.h"
#include "common/rewrite/matrix_operand.h"
#include "common/rewrite/operator_cut.h"
#include "common/rewrite/split_profile.h"
#include "common/rewrite/vocabulary_loss.h"

namespace stagewright {
namespace {

// How a node is computed in parts.
enum class Form {
  kProfile,  // A node of a profile.
  kColumns,  // A matrix by the features that come out.
  kRows,     // A matrix by the features that go in: its parts are added up.
  kCarried,  // Part by part of what it reads.
  kLoss,     // A cross-entropy of logits in parts.
};

struct Split {
  Form form;
  InParts result;  // How the result comes, unless whole; how what it reads comes, for rows.
};

bool GivesParts(const Split& split) {
  return split.form == Form::kColumns || split.form == Form::kCarried;
}

class Splitter {
 public:
  Splitter(const Graph& graph, std::map<NodeId, int32_t> asked)
      : graph_(graph), asked_(std::move(asked)), edit_(graph), splits_(graph.size()) {}

  absl::StatusOr<Graph> Run() {
    for (const int32_t v : graph_.dag().order()) splits_[v] = Decide(NodeId(v));
    for (int32_t v = 0; v < graph_.size(); ++v) FindWholeReads(NodeId(v));
    FindOtherReads();
    for (const int32_t v : graph_.dag().order()) {
      if (splits_[v].has_value()) RETURN_IF_ERROR(Emit(NodeId(v), *splits_[v]));
    }
    return std::move(edit_).Finish();
  }

 private:
  std::optional<InParts> PartsOfValue(ValueRef value) const {
    const std::optional<Split>& split = splits_[value.node.index()];
    if (!split.has_value() || !GivesParts(*split)) return std::nullopt;
    return split->result;
  }

  std::optional<InParts> PartsOfArgument(const Argument& argument) const {
    const auto* value = std::get_if<ValueRef>(&argument.value);
    return value == nullptr ? std::nullopt : PartsOfValue(*value);
  }

  // REQUIRES: decided for all that the node reads.
  std::optional<Split> Decide(NodeId id) const {
    const Node& node = graph_.node(id);
    if (const auto asked = asked_.find(id); asked != asked_.end()) {
      const int32_t parts = asked->second;
      if (node.cost.has_value()) return Split{Form::kProfile, {0, parts}};
      const MatrixOperand matrix = *MatrixOf(graph_, id);
      const auto read = PartsOfArgument(node.args[matrix.input]);
      const auto last = static_cast<int32_t>(node.outputs.front().shape.size()) - 1;
      if (!matrix.embedding && read == InParts{last, parts}) return Split{Form::kRows, *read};
      return Split{Form::kColumns, {last, parts}};
    }
    if (IsVocabularyLoss(graph_, id)) {
      const auto read = PartsOfArgument(node.args[0]);
      if (read.has_value() && read->dim == 1) return Split{Form::kLoss, *read};
    }
    const auto carried =
        CarriedParts(graph_, id, [this](ValueRef value) { return PartsOfValue(value); });
    if (!carried.has_value()) return std::nullopt;
    return Split{Form::kCarried, *carried};
  }

  // Which argument the node reads in parts, if it is not all that come so.
  bool ReadsInParts(NodeId id, ValueRef value) const {
    const std::optional<Split>& split = splits_[id.index()];
    if (!split.has_value() || split->form == Form::kProfile || split->form == Form::kColumns)
      return false;
    if (split->form == Form::kCarried) return true;
    const Node& node = graph_.node(id);
    const size_t index = split->form == Form::kLoss ? 0 : MatrixOf(graph_, id)->input;
    const auto* read = std::get_if<ValueRef>(&node.args[index].value);
    return read != nullptr && *read == value;
  }

  void FindWholeReads(NodeId id) {
    for (const ValueRef value : graph_.Values(id)) {
      if (PartsOfValue(value).has_value() && !ReadsInParts(id, value)) whole_[value.node] = true;
    }
  }

  void FindOtherReads() {
    if (graph_.loss().has_value()) whole_[graph_.loss()->node] = true;
    for (const StateUpdate& update : graph_.state_updates()) whole_[update.value.node] = true;
    if (!graph_.prediction().has_value()) return;
    const NodeId node = graph_.prediction()->node;
    if (!PartsOfValue(*graph_.prediction()).has_value() || whole_.contains(node)) return;
    // Accuracy is told of a row of classes for each sample only.
    if (graph_.meta(*graph_.prediction()).shape.size() == 2) {
      whole_[node] = true;
    } else {
      edit_.DropPrediction();
    }
  }

  absl::Status Emit(NodeId id, const Split& split) {
    const Node& node = graph_.node(id);
    switch (split.form) {
      case Form::kProfile:
        SplitProfiledNode(graph_, id, split.result.parts, edit_);
        return absl::OkStatus();
      case Form::kLoss:
        ReplaceVocabularyLoss(graph_, id, PartsRead(node.args[0]), edit_);
        return absl::OkStatus();
      case Form::kColumns: {
        ASSIGN_OR_RETURN(std::vector<Node> parts, Columns(id, split.result));
        Place(id, split.result, std::move(parts), /*slices=*/true);
        return absl::OkStatus();
      }
      case Form::kCarried:
        Place(id, split.result, Carried(id, split.result), /*slices=*/false);
        return absl::OkStatus();
      case Form::kRows:
        return AddUp(id, split.result);
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
        if (PartsOfArgument(argument).has_value())
          argument.value = ValueRef{PartsRead(argument)[i], 0};
      }
    }
    return parts;
  }

  // Puts the parts of a node into the graph and, where they are read joined, what joins them.
  void Place(NodeId id, const InParts& result, std::vector<Node> parts, bool slices) {
    const bool joined = whole_.contains(id);
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

  // A matrix by the features that go in. What is added once is added at the end.
  absl::Status AddUp(NodeId id, const InParts& read) {
    const Node& node = graph_.node(id);
    const MatrixOperand matrix = *MatrixOf(graph_, id);
    ASSIGN_OR_RETURN(const auto weights,
                     edit_.Slices(matrix.weight, 1 - matrix.out_dim, read.parts));
    const std::vector<NodeId>& inputs = PartsRead(node.args[matrix.input]);
    Node sum;  // The last one, in the node's place.
    for (int32_t i = 0; i < read.parts; ++i) {
      Node part = node;
      part.name = PartName(node.name, i, read.parts);
      part.target = "aten.matmul.default";
      if (matrix.out_dim == 0) part.target = "aten.linear.default";
      part.args = {{ValueRef{inputs[i], 0}}, {weights[i]}};
      part.kwargs.clear();
      const NodeId product = edit_.Add(std::move(part));
      edit_.ReadsSlices(product);
      if (i == 0) {
        sum.args = {{ValueRef{product, 0}}};
        continue;
      }
      if (i > 1) sum.args = {{ValueRef{edit_.Add(sum), 0}}};
      sum = Sum(node, absl::StrCat(node.name, ".sum", i), sum.args[0], {ValueRef{product, 0}});
    }
    if (matrix.added.has_value())
      sum = Sum(node, "", {ValueRef{edit_.Add(sum), 0}}, {*matrix.added});
    sum.name = node.name;
    edit_.Replace(id, std::move(sum));
    return absl::OkStatus();
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
  const std::map<NodeId, int32_t> asked_;
  GraphEdit edit_;
  std::vector<std::optional<Split>> splits_;     // By node.
  std::map<NodeId, bool> whole_;                 // Nodes whose result is read joined.
  std::map<NodeId, std::vector<NodeId>> parts_;  // By node that gives parts.
};

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
  return Splitter(graph, std::move(asked)).Run();
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
