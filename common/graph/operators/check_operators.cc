#include "common/graph/operators/check_operators.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/graph/operators/allowed_operators.h"

namespace stagewright {
namespace {

// All that text arguments of operators choose among: approximations, paddings, reductions,
// roundings, norms, interpolations, sides and drivers. Sorted.
constexpr std::array<absl::string_view, 48> kWords = {
    "L",      "U",        "add",      "amax",     "amin",      "backward", "bicubic",  "bilinear",
    "border", "circular", "complete", "constant", "edge",      "floor",    "forward",  "fro",
    "gels",   "gelsd",    "gelss",    "gelsy",    "gesvd",     "gesvda",   "gesvdj",   "higher",
    "ij",     "left",     "linear",   "lower",    "mean",      "midpoint", "multiply", "nearest",
    "none",   "nuc",      "ortho",    "prod",     "r",         "reduced",  "reflect",  "replicate",
    "right",  "same",     "sum",      "tanh",     "trilinear", "trunc",    "valid",    "xy"};

constexpr absl::string_view kEinsum = "aten.einsum.default";
constexpr size_t kLongestEquation = 256;

bool IsWord(absl::string_view text) {
  return std::binary_search(kWords.begin(), kWords.end(), text);
}

// "bij,bjk->bik"
bool IsEquation(absl::string_view text) {
  constexpr absl::string_view kSigns = ",.-> ";
  return text.size() <= kLongestEquation && std::all_of(text.begin(), text.end(), [&](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  kSigns.find(c) != absl::string_view::npos;
         });
}

std::string NodeAndOperator(const Node& node) {
  return absl::StrCat("node \"", node.name, "\" (", node.target, ")");
}

}  // namespace

absl::Status CheckOperator(const Node& node) {
  if (node.cost.has_value()) return absl::OkStatus();
  if (!IsAllowedOperator(node.target)) {
    return absl::InvalidArgumentError(absl::StrCat(
        NodeAndOperator(node),
        ": the operator is not allowed: graphs may name those of LibTorch that compute "
        "tensors from tensors and do nothing else"));
  }
  absl::Status status;
  ForEachLeaf(node, [&](const Argument& leaf) {
    const auto* text = std::get_if<std::string>(&leaf.value);
    if (text == nullptr || !status.ok() || IsWord(*text)) return;
    if (node.target == kEinsum && IsEquation(*text)) return;
    status = absl::InvalidArgumentError(absl::StrCat(
        NodeAndOperator(node), ": no operator that is allowed takes the text \"", *text, "\""));
  });
  return status;
}

absl::Status CheckOperators(const GraphData& data) {
  const auto check = [](const std::vector<Node>& nodes, absl::string_view field) {
    for (size_t i = 0; i < nodes.size(); ++i)
      RETURN_IF_ERROR(Annotate(CheckOperator(nodes[i]), absl::StrCat(field, "[", i, "]")));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(check(data.nodes, "nodes"));
  return check(data.totals.nodes, "totals.nodes");
}

}  // namespace stagewright
