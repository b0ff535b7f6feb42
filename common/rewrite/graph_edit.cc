#include "common/rewrite/graph_edit.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stagewright {

NodeId GraphEdit::Add(Node node) {
  data_.nodes.push_back(std::move(node));
  return NodeId(data_.nodes.size() - 1);
}

absl::StatusOr<std::vector<ParameterId>> GraphEdit::Slices(ParameterId id, int32_t dim,
                                                           int32_t parts) {
  const Parameter whole = data_.parameters[id.index()];
  const auto bad = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter \"", whole.stored_name(), "\" ", what...));
  };
  if (const auto known = slices_.find(id); known != slices_.end()) {
    if (whole.slice->dim == dim && known->second.size() == static_cast<size_t>(parts))
      return known->second;
    return bad("is read by several nodes, which would cut it in different ways");
  }
  if (whole.data.has_value()) return bad("is a constant of the graph and cannot be cut");
  if (whole.slice.has_value() && whole.slice->dim != dim)
    return bad("is a part already, along another dimension");
  if (dim >= static_cast<int32_t>(whole.shape.size()) || whole.shape[dim] % parts != 0)
    return bad("cannot be cut in ", parts, " along dimension ", dim);
  const int64_t size = whole.shape[dim] / parts;
  std::vector<ParameterId> ids;
  for (int32_t i = 0; i < parts; ++i) {
    Parameter part = whole;
    if (!part.slice.has_value()) part.slice = {whole.name, whole.aliases, whole.shape, dim, 0};
    part.slice->begin += i * size;
    part.name = PartName(whole.name, i, parts);
    part.aliases.clear();
    part.shape[dim] = size;
    if (i == 0) {
      ids.push_back(id);
      data_.parameters[id.index()] = std::move(part);
    } else {
      ids.emplace_back(data_.parameters.size());
      data_.parameters.push_back(std::move(part));
    }
  }
  return slices_.emplace(id, std::move(ids)).first->second;
}

void GraphEdit::ReadsSlices(NodeId id) {
  reads_slices_.resize(std::max(reads_slices_.size(), data_.nodes.size()));
  reads_slices_[id.index()] = true;
}

void GraphEdit::FollowRedirections() {
  if (redirected_.empty()) return;
  const auto follow = [&](ValueRef& value) {
    if (const auto to = redirected_.find(value); to != redirected_.end()) value = to->second;
  };
  const std::function<void(Argument&)> follow_leaves = [&](Argument& argument) {
    if (auto* value = std::get_if<ValueRef>(&argument.value)) follow(*value);
    if (auto* list = std::get_if<Argument::List>(&argument.value)) {
      for (Argument& item : *list) follow_leaves(item);
    }
  };
  for (Node& node : data_.nodes) {  // Nodes of totals have values of their own.
    for (Argument& argument : node.args) follow_leaves(argument);
    for (NamedArgument& argument : node.kwargs) follow_leaves(argument.value);
  }
  for (StateUpdate& update : data_.state_updates) follow(update.value);
  if (data_.loss.has_value()) follow(*data_.loss);
  if (data_.prediction.has_value()) follow(*data_.prediction);
}

absl::StatusOr<Graph> GraphEdit::Finish() && {
  FollowRedirections();
  reads_slices_.resize(data_.nodes.size());
  absl::Status status;
  const auto check = [&](const Node& node) {
    ForEachLeaf(node, [&](const Argument& leaf) {
      const auto* id = std::get_if<ParameterId>(&leaf.value);
      if (id == nullptr || !slices_.contains(*id)) return;
      status = absl::InvalidArgumentError(
          absl::StrCat("parameter \"", data_.parameters[id->index()].stored_name(),
                       "\" is read by node \"", node.name, "\", too, which is not cut like it"));
    });
  };
  for (size_t v = 0; v < data_.nodes.size(); ++v) {
    if (!reads_slices_[v]) check(data_.nodes[v]);
  }
  for (const Node& node : data_.totals.nodes) check(node);
  for (const StateUpdate& update : data_.state_updates) {
    if (!slices_.contains(update.parameter)) continue;
    status = absl::InvalidArgumentError(
        absl::StrCat("parameter \"", data_.parameters[update.parameter.index()].stored_name(),
                     "\" is a state that training updates"));
  }
  RETURN_IF_ERROR(status);
  return Graph::Create(std::move(data_));
}

}  // namespace stagewright
