#include "common/rewrite/vocabulary_loss.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/graph/aten.h"
#include "common/rewrite/vocabulary.h"

namespace stagewright {
namespace {

constexpr int64_t kIgnoreIndex = -100;  // PyTorch's default.
constexpr int64_t kMean = 1, kSum = 2;  // PyTorch's reductions; mean is the default.

std::optional<int64_t> IntegerAt(const Node& node, size_t index, int64_t otherwise) {
  if (index >= node.args.size()) return otherwise;
  const auto* number = std::get_if<SymInt>(&node.args[index].value);
  if (number == nullptr || number->scale != 0) return std::nullopt;
  return number->offset;
}

std::optional<TensorMeta> MetaOf(const Graph& graph, const Argument& argument) {
  if (const auto* value = std::get_if<ValueRef>(&argument.value)) return graph.meta(*value);
  if (const auto* input = std::get_if<InputId>(&argument.value)) return graph.input(*input).meta;
  return std::nullopt;
}

Argument Of(NodeId node) { return {ValueRef{node, 0}}; }
Argument Integer(int64_t value) { return {SymInt{0, value}}; }

// Makes nodes whose results have one entry for each of the targets.
class LossMaker {
 public:
  LossMaker(const Graph& graph, NodeId id, const std::vector<NodeId>& logits, GraphEdit& edit)
      : loss_(graph.node(id)),
        id_(id),
        logits_(logits),
        edit_(edit),
        labels_(*MetaOf(graph, loss_.args[1])) {
    scores_ = labels_;
    scores_.dtype = graph.meta(std::get<ValueRef>(loss_.args[0].value)).dtype;
    truths_ = labels_;
    truths_.dtype = DType::kBool;
  }

  void Make() {
    const int64_t ignore = *IntegerAt(loss_, 4, kIgnoreIndex);
    const NodeId ignored =
        Add("ignored", "aten.eq.Scalar", {loss_.args[1], Integer(ignore)}, truths_);
    const NodeId counted = Add("counted", "aten.masked_fill.Scalar",
                               {loss_.args[1], Of(ignored), Integer(0)}, labels_);
    Argument::List sums;
    std::optional<NodeId> picked;
    int64_t begin = 0;
    for (size_t i = 0; i < logits_.size(); ++i) {
      const auto [sum, own] = Part(i, begin, counted);
      sums.push_back(Of(sum));
      picked = picked ? Add(absl::StrCat("picked", i), "aten.add.Tensor", {Of(*picked), Of(own)},
                            scores_)
                      : own;
      begin += edit_.node(logits_[i]).outputs.front().shape[1].offset;
    }
    Reduce(Whole(std::move(sums)), *picked, ignored);
  }

 private:
  NodeId Add(const std::string& name, const char* target, std::vector<Argument> args,
             TensorMeta meta) {
    Node node;
    node.name = absl::StrCat(loss_.name, ".", name);
    node.target = target;
    node.args = std::move(args);
    node.outputs = {std::move(meta)};
    node.module = loss_.module;
    return edit_.Add(std::move(node));
  }

  // With an entry more at the end of each, `size` of them.
  static TensorMeta Widened(TensorMeta meta, int64_t size) {
    meta.shape.push_back({0, size});
    return meta;
  }

  // The logarithm of the part's sum of exponentials, and the logit of the class where the part has
  // it.
  std::pair<NodeId, NodeId> Part(size_t i, int64_t begin, NodeId counted) {
    const std::string at = absl::StrCat("part", i, ".");
    TensorMeta meta = edit_.node(logits_[i]).outputs.front();
    const WordRange range{static_cast<int32_t>(i), static_cast<int32_t>(logits_.size()), begin,
                          meta.shape[1].offset};
    meta.dtype = scores_.dtype;
    // Where precision is mixed, products come in the lower one.
    const NodeId logits =
        Add(at + "logits", "aten.to.dtype", {Of(logits_[i]), {scores_.dtype}}, meta);
    const NodeId sum = Add(at + "logsumexp", "aten.logsumexp.default",
                           {Of(logits), {Argument::List{Integer(1)}}}, scores_);
    const LocalWords classes = AddLocalWords(absl::StrCat(loss_.name, ".", at), loss_.module,
                                             Of(counted), labels_, range, edit_);
    TensorMeta column = labels_;
    column.shape.insert(column.shape.begin() + 1, {0, 1});
    if (column.layout.has_value() && column.layout->dim >= 1) ++column.layout->dim;
    const NodeId index =
        Add(at + "index", "aten.unsqueeze.default", {Of(classes.index), Integer(1)}, column);
    column.dtype = scores_.dtype;
    const NodeId gathered =
        Add(at + "gathered", "aten.gather.default", {Of(logits), Integer(1), Of(index)}, column);
    const NodeId logit = Add(at + "logit", "aten.squeeze.dim", {Of(gathered), Integer(1)}, scores_);
    return {sum, Add(at + "picked", "aten.masked_fill.Scalar",
                     {Of(logit), Of(classes.outside), Integer(0)}, scores_)};
  }

  NodeId Whole(Argument::List sums) {
    const auto rank = static_cast<int64_t>(scores_.shape.size());
    const auto count = static_cast<int64_t>(sums.size());
    const NodeId stacked = Add("sums", "aten.stack.default", {{std::move(sums)}, Integer(rank)},
                               Widened(scores_, count));
    return Add("logsumexp", "aten.logsumexp.default",
               {Of(stacked), {Argument::List{Integer(rank)}}}, scores_);
  }

  void Reduce(NodeId sums, NodeId picked, NodeId ignored) {
    const NodeId each = Add("each", "aten.sub.Tensor", {Of(sums), Of(picked)}, scores_);
    const int64_t reduction = *IntegerAt(loss_, 3, kMean);
    Node last = loss_;
    last.args = {Of(each), Of(ignored), Integer(0)};
    last.target = "aten.masked_fill.Scalar";
    if (reduction == kMean || reduction == kSum) {
      const NodeId counting = Add("masked", "aten.masked_fill.Scalar", last.args, scores_);
      last.args = {Of(counting)};
      last.target = "aten.sum.default";
    }
    if (reduction == kMean) {
      const NodeId sum = Add("sum", "aten.sum.default", last.args, loss_.outputs.front());
      const NodeId counts = Add("counts", "aten.logical_not.default", {Of(ignored)}, truths_);
      TensorMeta number = loss_.outputs.front();
      number.dtype = DType::kInt64;
      const NodeId count = Add("count", "aten.sum.default", {Of(counts)}, number);
      last.args = {Of(sum), Of(count)};
      last.target = "aten.div.Tensor";
    }
    edit_.Replace(id_, std::move(last));
  }

  const Node loss_;  // As it was: its place is taken.
  const NodeId id_;
  const std::vector<NodeId>& logits_;
  GraphEdit& edit_;
  TensorMeta labels_, scores_, truths_;  // An integer, a number, a truth value for each target.
};

}  // namespace

bool IsVocabularyLoss(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (AtenName(node.target) != "cross_entropy_loss" || node.args.size() < 2 ||
      !node.kwargs.empty() || !std::holds_alternative<ValueRef>(node.args[0].value))
    return false;
  const TensorMeta& scores = graph.meta(std::get<ValueRef>(node.args[0].value));
  const auto labels = MetaOf(graph, node.args[1]);
  if (!labels.has_value() || IsFloating(labels->dtype) ||
      labels->shape.size() + 1 != scores.shape.size() || scores.shape.size() < 2)
    return false;
  if (node.args.size() > 2 && !std::holds_alternative<None>(node.args[2].value)) return false;
  if (!IntegerAt(node, 3, kMean).has_value() || !IntegerAt(node, 4, kIgnoreIndex).has_value())
    return false;
  const double* smoothing =
      node.args.size() > 5 ? std::get_if<double>(&node.args[5].value) : nullptr;
  return node.args.size() <= 5 || (smoothing != nullptr && *smoothing == 0);
}

void ReplaceVocabularyLoss(const Graph& graph, NodeId node, const std::vector<NodeId>& logits,
                           GraphEdit& edit) {
  LossMaker(graph, node, logits, edit).Make();
}

}  // namespace stagewright
