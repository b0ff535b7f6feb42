#include "common/graph/aten.h"

#include <algorithm>
#include <array>

namespace stagewright {
namespace {

constexpr std::array<std::string_view, 36> kViews = {
    "alias",        "chunk",          "detach",       "diagonal", "expand",
    "expand_as",    "flatten",        "getitem",      "movedim",  "narrow",
    "permute",      "reshape",        "reshape_as",   "select",   "slice",
    "split",        "squeeze",        "swapaxes",     "swapdims", "t",
    "transpose",    "unbind",         "unflatten",    "unfold",   "view",
    "view_as",      "unsqueeze",      "_unsafe_view", "mT",       "split_with_sizes",
    "tensor_split", "_reshape_alias", "lift_fresh",   "sym_size", "lift_fresh_copy",
    "as_strided"};

constexpr std::array<std::string_view, 13> kMatmuls = {
    "linear", "mm",    "bmm", "addmm", "matmul", "linalg_matmul", "baddbmm",
    "addbmm", "addmv", "mv",  "dot",   "vdot",   "inner"};

constexpr std::array<std::string_view, 6> kContractions = {
    "einsum", "tensordot", "bilinear", "linalg_multi_dot", "chain_matmul", "cdist"};

constexpr std::array<std::string_view, 8> kRecurrent = {"lstm",          "gru",          "rnn_tanh",
                                                        "rnn_relu",      "lstm_cell",    "gru_cell",
                                                        "rnn_tanh_cell", "rnn_relu_cell"};

template <size_t n>
bool Contains(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

}  // namespace

std::string_view AtenName(std::string_view target) {
  if (StartsWith(target, "aten.")) target.remove_prefix(5);
  return target.substr(0, target.find('.'));
}

AtenKind KindOfTarget(std::string_view target) {
  const std::string_view name = AtenName(target);
  if (Contains(kViews, name)) return AtenKind::kView;
  if (Contains(kMatmuls, name)) return AtenKind::kMatmul;
  if (Contains(kContractions, name)) return AtenKind::kContraction;
  if (Contains(kRecurrent, name)) return AtenKind::kRecurrent;
  if (name == "convolution" || name == "_convolution" || StartsWith(name, "conv1d") ||
      StartsWith(name, "conv2d") || StartsWith(name, "conv3d") ||
      StartsWith(name, "conv_depthwise3d") || StartsWith(name, "conv_transpose")) {
    return AtenKind::kConvolution;
  }
  if (name == "scaled_dot_product_attention" || StartsWith(name, "_scaled_dot_product")) {
    return AtenKind::kAttention;
  }
  if (name == "embedding") return AtenKind::kEmbedding;
  return AtenKind::kElementwise;
}

bool IsMatmulLike(AtenKind kind) {
  return kind == AtenKind::kMatmul || kind == AtenKind::kConvolution ||
         kind == AtenKind::kAttention || kind == AtenKind::kContraction ||
         kind == AtenKind::kRecurrent;
}

}  // namespace stagewright
