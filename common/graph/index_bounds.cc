#include "common/graph/index_bounds.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "common/graph/aten.h"

namespace stagewright {
namespace {

constexpr int64_t kIgnoreIndex = -100;  // PyTorch's default.

// Every element stays as it is, and so do the dimensions.
constexpr std::array<std::string_view, 9> kSame = {"clone", "contiguous", "detach",
                                                   "alias", "lift_fresh", "lift_fresh_copy",
                                                   "to",    "_to_copy",   "type_as"};

// Every element stays as it is, somewhere.
constexpr std::array<std::string_view, 17> kReshapes = {
    "view",    "reshape",   "_unsafe_view", "flatten", "unflatten", "squeeze",
    "expand",  "unsqueeze", "expand_as",    "t",       "transpose", "permute",
    "movedim", "swapaxes",  "swapdims",     "view_as", "reshape_as"};

// (scores, target, weight, reduction, ignore_index, ...).
constexpr std::array<std::string_view, 6> kClassLosses = {
    "cross_entropy_loss", "nll_loss",         "nll_loss_nd",
    "nll_loss2d",         "nll_loss_forward", "nll_loss2d_forward"};

template <size_t n>
bool Among(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool IsIndex(DType dtype) { return !IsFloating(dtype) && dtype != DType::kBool; }

// Elements of an input in a value: input[box] + shift, in their dimensions unless `reshaped`.
struct Origin {
  InputId input;
  int64_t shift = 0;
  bool reshaped = false;
  std::vector<int32_t> dims;  // Dimensions of the input, by dimension of the value.
  std::vector<Extent> box;    // By dimension of the input.
};
using Origins = std::vector<Origin>;

class BoundsFinder {
 public:
  explicit BoundsFinder(const Graph& graph) : graph_(graph) {}

  std::vector<IndexBounds> Find() {
    for (const int32_t v : graph_.dag().order()) Visit(NodeId(v));
    return std::move(bounds_);
  }

 private:
  void Visit(NodeId id) {
    const Node& node = graph_.node(id);
    const std::string_view name = AtenName(node.target);
    if (node.args.empty()) return;
    if (name == "embedding" && node.args.size() > 1) {
      Add(id, RowsOf(node.args[0]), OriginsOf(node.args[1]), std::nullopt);
    } else if (Among(kClassLosses, name) && node.args.size() > 1) {
      Add(id, ClassesOf(node.args[0]), OriginsOf(node.args[1]), Ignored(node));
    } else if (!node.outputs.empty() && IsIndex(node.outputs[0].dtype)) {
      Origins origins = Through(node, name);
      if (!origins.empty()) origins_[{id, 0}] = std::move(origins);
    }
  }

  // What the node passes on.
  Origins Through(const Node& node, std::string_view name) const {
    Origins origins = OriginsOf(node.args[0]);
    if (Among(kSame, name)) return origins;
    if (name == "copy" || name == "slice_scatter") {
      return node.args.size() > 1 ? Reshaped(OriginsOf(node.args[1])) : Origins();
    }
    if (Among(kReshapes, name) || name == "cat" || name == "stack")
      return Reshaped(std::move(origins));
    if (name == "slice") return Cut(node, std::move(origins), /*select=*/false);
    if (name == "select") return Cut(node, std::move(origins), /*select=*/true);
    if (name == "add" || name == "sub") return Shifted(node, name, std::move(origins));
    return {};
  }

  Origins OriginsOf(const Argument& argument) const {
    Origins origins;
    const auto add = [&](const Argument& leaf) {
      if (const auto* value = std::get_if<ValueRef>(&leaf.value)) {
        const auto found = origins_.find(*value);
        if (found != origins_.end())
          origins.insert(origins.end(), found->second.begin(), found->second.end());
      } else if (const auto* input = std::get_if<InputId>(&leaf.value)) {
        const TensorMeta& meta = graph_.input(*input).meta;
        if (!IsIndex(meta.dtype)) return;
        Origin origin{*input, 0, false, {}, std::vector<Extent>(meta.shape.size())};
        for (size_t i = 0; i < meta.shape.size(); ++i)
          origin.dims.push_back(static_cast<int32_t>(i));
        origins.push_back(std::move(origin));
      }
    };
    ForEachLeaf(argument, add);
    return origins;
  }

  static Origins Reshaped(Origins origins) {
    for (Origin& origin : origins) origin.reshaped = true;
    return origins;
  }

  // An integer argument; `otherwise` if there is none, nothing if it is not known.
  static std::optional<int64_t> Integer(const Node& node, size_t place, std::string_view name,
                                        int64_t otherwise) {
    const Argument* argument = place < node.args.size() ? &node.args[place] : nullptr;
    for (const NamedArgument& given : node.kwargs) {
      if (given.name == name) argument = &given.value;
    }
    if (argument == nullptr || std::holds_alternative<None>(argument->value)) return otherwise;
    const auto* number = std::get_if<SymInt>(&argument->value);
    if (number == nullptr || number->scale != 0) return std::nullopt;
    return number->offset;
  }

  // Parts along a dimension that is still the input's own, and not that of the samples.
  Origins Cut(const Node& node, Origins origins, bool select) const {
    constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
    const auto dim = Integer(node, 1, "dim", 0);
    const auto start = Integer(node, 2, select ? "index" : "start", 0);
    const auto end = select ? kAll : Integer(node, 3, "end", kAll);
    if (!dim.has_value() || !start.has_value() || !end.has_value() ||
        (!select && Integer(node, 4, "step", 1) != 1))
      return {};
    if (!select && *start == 0 && *end == kAll) return origins;
    Origins cut;
    for (Origin& origin : origins) {
      const auto rank = static_cast<int64_t>(origin.dims.size());
      const int64_t at = *dim < 0 ? *dim + rank : *dim;
      if (origin.reshaped || at < 0 || at >= rank) continue;
      const int32_t own = origin.dims[at];
      const SymInt size = graph_.input(origin.input).meta.shape[own];
      if (size.scale != 0) continue;
      Extent& extent = origin.box[own];
      const int64_t last = std::min(extent.end, size.offset);
      const auto place = [&](int64_t i) {
        return std::clamp(i < 0       ? last + i
                          : i >= last ? last
                                      : extent.begin + i,
                          extent.begin, last);
      };
      const int64_t begin = place(*start);
      extent = {begin, select ? std::min(begin + 1, last) : place(*end)};
      if (select) origin.dims.erase(origin.dims.begin() + at);
      cut.push_back(std::move(origin));
    }
    return cut;
  }

  // Another tensor is no shift, and neither is a multiple.
  static Origins Shifted(const Node& node, std::string_view name, Origins origins) {
    if (node.args.size() != 2 || !node.kwargs.empty()) return {};
    const auto* number = std::get_if<SymInt>(&node.args[1].value);
    if (number == nullptr || number->scale != 0) return {};
    for (Origin& origin : origins) origin.shift += name == "add" ? number->offset : -number->offset;
    return origins;
  }

  std::optional<int64_t> RowsOf(const Argument& table) const {
    if (const auto* parameter = std::get_if<ParameterId>(&table.value)) {
      const auto& shape = graph_.parameter(*parameter).shape;
      return shape.empty() ? std::nullopt : std::optional(shape[0]);
    }
    return SizeOf(table, 0);
  }

  std::optional<int64_t> ClassesOf(const Argument& scores) const {
    const auto* value = std::get_if<ValueRef>(&scores.value);
    if (value == nullptr) return std::nullopt;
    return SizeOf(scores, graph_.meta(*value).shape.size() == 1 ? 0 : 1);
  }

  std::optional<int64_t> SizeOf(const Argument& argument, size_t dim) const {
    const auto* value = std::get_if<ValueRef>(&argument.value);
    if (value == nullptr) return std::nullopt;
    const auto& shape = graph_.meta(*value).shape;
    if (dim >= shape.size() || shape[dim].scale != 0) return std::nullopt;
    return shape[dim].offset;
  }

  static std::optional<int64_t> Ignored(const Node& node) {
    return Integer(node, 4, "ignore_index", kIgnoreIndex);
  }

  void Add(NodeId node, std::optional<int64_t> size, Origins origins,
           std::optional<int64_t> ignored) {
    if (!size.has_value()) return;
    for (Origin& origin : origins) {
      IndexBounds bounds{origin.input,  node,
                         -origin.shift, *size - 1 - origin.shift,
                         std::nullopt,  std::move(origin.box)};
      if (ignored.has_value()) bounds.ignored = *ignored - origin.shift;
      bounds_.push_back(std::move(bounds));
    }
  }

  const Graph& graph_;
  std::map<ValueRef, Origins> origins_;
  std::vector<IndexBounds> bounds_;
};

}  // namespace

std::vector<IndexBounds> FindIndexBounds(const Graph& graph) { return BoundsFinder(graph).Find(); }

}  // namespace stagewright
