#include "common/rewrite/graph_edit.h"

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
  if (whole.slice.has_value()) return bad("is a part already");
  if (dim >= static_cast<int32_t>(whole.shape.size()) || whole.shape[dim] % parts != 0)
    return bad("cannot be cut in ", parts, " along dimension ", dim);
  const int64_t size = whole.shape[dim] / parts;
  std::vector<ParameterId> ids;
  for (int32_t i = 0; i < parts; ++i) {
    Parameter part = whole;
    part.slice = {whole.name, whole.aliases, whole.shape, dim, i * size};
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

absl::StatusOr<Graph> GraphEdit::Finish() && {
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
