#include "common/rewrite/split_decisions.h"

#include <algorithm>

#include "common/rewrite/matrix_operand.h"
#include "common/rewrite/taken.h"
#include "common/rewrite/vocabulary_loss.h"

namespace stagewright {

SplitDecisions::SplitDecisions(const Graph& graph, const std::map<NodeId, int32_t>& asked)
    : graph_(graph),
      splits_(graph.size()),
      joined_(graph.size()),
      shared_(graph.parameters().size()),
      by_words_(graph.parameters().size()) {
  std::vector<int32_t> readers(graph.parameters().size());
  for (const auto& [node, parts] : asked) {
    const auto matrix = MatrixOf(graph, node);
    if (!matrix.has_value()) continue;
    shared_[matrix->weight.index()] = ++readers[matrix->weight.index()] > 1;
    if (!matrix->embedding) by_words_[matrix->weight.index()] = true;
  }
  for (const int32_t v : graph.dag().order()) splits_[v] = Decide(NodeId(v), asked);
  FindJoined();
}

std::optional<InParts> SplitDecisions::PartsOfValue(ValueRef value) const {
  const std::optional<Split>& split = of(value.node);
  const bool gives = split.has_value() &&
                     (split->form == SplitForm::kColumns || split->form == SplitForm::kCarried);
  return gives ? std::optional(split->parts) : std::nullopt;
}

std::optional<InParts> SplitDecisions::PartsOfArgument(const Argument& argument) const {
  const auto* value = std::get_if<ValueRef>(&argument.value);
  return value == nullptr ? std::nullopt : PartsOfValue(*value);
}

bool SplitDecisions::AnyJoined() const {
  return std::find(joined_.begin(), joined_.end(), true) != joined_.end();
}

bool SplitDecisions::AnyTaken() const {
  return std::any_of(splits_.begin(), splits_.end(), [](const std::optional<Split>& split) {
    return split.has_value() && split->form == SplitForm::kTaken;
  });
}

Split SplitDecisions::DecideAsked(NodeId id, int32_t parts) const {
  const Node& node = graph_.node(id);
  if (node.cost.has_value()) return {SplitForm::kProfile, {0, parts}};
  const MatrixOperand matrix = *MatrixOf(graph_, id);
  const auto last = static_cast<int32_t>(node.outputs.front().shape.size()) - 1;
  if (matrix.embedding && by_words_[matrix.weight.index()])
    return {SplitForm::kWords, {last, parts}};
  const auto read = PartsOfArgument(node.args[matrix.input]);
  // A layer that was parted from a joint one is a slice already, which goes on along its dimension.
  const auto& slice = graph_.parameter(matrix.weight).slice;
  const bool by_rows = !slice.has_value() || slice->dim == 1 - matrix.out_dim;
  if (!matrix.embedding && by_rows && !shared_[matrix.weight.index()] &&
      read == InParts{last, parts})
    return {SplitForm::kRows, *read};
  return {SplitForm::kColumns, {last, parts}};
}

// REQUIRES: decided for all that the node reads.
std::optional<Split> SplitDecisions::Decide(NodeId id,
                                            const std::map<NodeId, int32_t>& asked) const {
  if (const auto found = asked.find(id); found != asked.end())
    return DecideAsked(id, found->second);
  const Node& node = graph_.node(id);
  if (IsVocabularyLoss(graph_, id)) {
    const auto read = PartsOfArgument(node.args[0]);
    if (read.has_value() && read->dim == 1) return Split{SplitForm::kLoss, *read};
  }
  const PartsOf parts_of = [this](ValueRef value) { return PartsOfValue(value); };
  if (const auto carried = CarriedParts(graph_, id, parts_of); carried.has_value())
    return Split{SplitForm::kCarried, *carried};
  if (const auto taken = TakenParts(graph_, id, parts_of); taken.has_value())
    return Split{SplitForm::kTaken, *PartsOfArgument(node.args[0])};
  return std::nullopt;
}

// The node reads the value, which comes in parts, part by part.
bool SplitDecisions::ReadsInParts(NodeId id, ValueRef value) const {
  const std::optional<Split>& split = of(id);
  if (!split.has_value()) return false;
  size_t index = 0;
  switch (split->form) {
    case SplitForm::kProfile:
    case SplitForm::kColumns:
    case SplitForm::kWords:
      return false;
    case SplitForm::kCarried:
      return true;
    case SplitForm::kRows:
      index = MatrixOf(graph_, id)->input;
      break;
    case SplitForm::kTaken:
    case SplitForm::kLoss:
      break;
  }
  const auto* read = std::get_if<ValueRef>(&graph_.node(id).args[index].value);
  return read != nullptr && *read == value;
}

void SplitDecisions::FindJoined() {
  for (int32_t v = 0; v < graph_.size(); ++v) {
    for (const ValueRef value : graph_.Values(NodeId(v))) {
      if (PartsOfValue(value).has_value() && !ReadsInParts(NodeId(v), value))
        joined_[value.node.index()] = true;
    }
  }
  const auto join = [&](ValueRef value) {
    if (PartsOfValue(value).has_value()) joined_[value.node.index()] = true;
  };
  if (graph_.loss().has_value()) join(*graph_.loss());
  for (const StateUpdate& update : graph_.state_updates()) join(update.value);
  if (!graph_.prediction().has_value()) return;
  const ValueRef prediction = *graph_.prediction();
  if (!PartsOfValue(prediction).has_value() || IsJoined(prediction.node)) return;
  // Accuracy is told of a row of classes for each sample only.
  if (graph_.meta(prediction).shape.size() == 2) {
    join(prediction);
  } else {
    drops_prediction_ = true;
  }
}

}  // namespace stagewright
