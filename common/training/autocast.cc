#include "common/training/autocast.h"

#include <algorithm>
#include <array>
#include <set>
#include <variant>

#include "common/base/check.h"
#include "common/graph/aten.h"

namespace stagewright {
namespace {

// Sorted, as are the others. On LibTorch's lists of both CPUs and GPUs.
constexpr std::array<std::string_view, 17> kSmaller = {"addbmm",
                                                       "addmm",
                                                       "baddbmm",
                                                       "bmm",
                                                       "conv1d",
                                                       "conv2d",
                                                       "conv3d",
                                                       "conv_transpose1d",
                                                       "conv_transpose2d",
                                                       "conv_transpose3d",
                                                       "linalg_matmul",
                                                       "linalg_vecdot",
                                                       "linear",
                                                       "matmul",
                                                       "mm",
                                                       "prelu",
                                                       "scaled_dot_product_attention"};

constexpr std::array<std::string_view, 12> kSmallerOnGpu = {"_scaled_dot_product_flash_attention",
                                                            "addmv",
                                                            "addr",
                                                            "chain_matmul",
                                                            "convolution",
                                                            "einsum",
                                                            "gru_cell",
                                                            "linalg_multi_dot",
                                                            "lstm_cell",
                                                            "mv",
                                                            "rnn_relu_cell",
                                                            "rnn_tanh_cell"};

constexpr std::array<std::string_view, 22> kFloat32 = {"binary_cross_entropy",
                                                       "binary_cross_entropy_with_logits",
                                                       "cdist",
                                                       "cosine_embedding_loss",
                                                       "cross_entropy_loss",
                                                       "grid_sampler",
                                                       "hinge_embedding_loss",
                                                       "huber_loss",
                                                       "kl_div",
                                                       "l1_loss",
                                                       "margin_ranking_loss",
                                                       "mse_loss",
                                                       "multi_margin_loss",
                                                       "multilabel_margin_loss",
                                                       "nll_loss",
                                                       "nll_loss2d",
                                                       "nll_loss_nd",
                                                       "poisson_nll_loss",
                                                       "prod",
                                                       "smooth_l1_loss",
                                                       "soft_margin_loss",
                                                       "triplet_margin_loss"};

constexpr std::array<std::string_view, 35> kFloat32OnGpu = {"acos",
                                                            "asin",
                                                            "cosh",
                                                            "cosine_similarity",
                                                            "cumprod",
                                                            "cumsum",
                                                            "dist",
                                                            "erfinv",
                                                            "exp",
                                                            "expm1",
                                                            "frobenius_norm",
                                                            "group_norm",
                                                            "layer_norm",
                                                            "linalg_matrix_norm",
                                                            "linalg_vector_norm",
                                                            "log",
                                                            "log10",
                                                            "log1p",
                                                            "log2",
                                                            "log_softmax",
                                                            "logsumexp",
                                                            "native_layer_norm",
                                                            "norm",
                                                            "nuclear_norm",
                                                            "pdist",
                                                            "pow",
                                                            "reciprocal",
                                                            "renorm",
                                                            "rms_norm",
                                                            "rsqrt",
                                                            "sinh",
                                                            "softmax",
                                                            "softplus",
                                                            "sum",
                                                            "tan"};

constexpr std::array<std::string_view, 67> kFloat32OnCpu = {"adaptive_avg_pool3d",
                                                            "adaptive_max_pool3d",
                                                            "avg_pool3d",
                                                            "cholesky",
                                                            "cholesky_inverse",
                                                            "cholesky_solve",
                                                            "ctc_loss",
                                                            "fft_fft",
                                                            "fft_fft2",
                                                            "fft_fftn",
                                                            "fft_hfft",
                                                            "fft_ifft",
                                                            "fft_ifft2",
                                                            "fft_ifftn",
                                                            "fft_ihfft",
                                                            "fft_irfft",
                                                            "fft_irfft2",
                                                            "fft_irfftn",
                                                            "fft_rfft",
                                                            "fft_rfft2",
                                                            "fft_rfftn",
                                                            "fractional_max_pool2d",
                                                            "fractional_max_pool3d",
                                                            "geqrf",
                                                            "grid_sampler_2d",
                                                            "grid_sampler_3d",
                                                            "inverse",
                                                            "linalg_cholesky",
                                                            "linalg_cholesky_ex",
                                                            "linalg_cond",
                                                            "linalg_eig",
                                                            "linalg_eigh",
                                                            "linalg_eigvals",
                                                            "linalg_eigvalsh",
                                                            "linalg_householder_product",
                                                            "linalg_inv",
                                                            "linalg_inv_ex",
                                                            "linalg_lstsq",
                                                            "linalg_matrix_rank",
                                                            "linalg_qr",
                                                            "linalg_solve",
                                                            "linalg_svd",
                                                            "linalg_svdvals",
                                                            "linalg_tensorinv",
                                                            "linalg_tensorsolve",
                                                            "lu_solve",
                                                            "max_pool3d",
                                                            "max_unpool2d",
                                                            "max_unpool3d",
                                                            "multilabel_margin_loss_forward",
                                                            "nanquantile",
                                                            "orgqr",
                                                            "ormqr",
                                                            "pinverse",
                                                            "polar",
                                                            "qr",
                                                            "quantile",
                                                            "reflection_pad1d",
                                                            "reflection_pad2d",
                                                            "replication_pad1d",
                                                            "replication_pad2d",
                                                            "replication_pad3d",
                                                            "stft",
                                                            "svd",
                                                            "trace",
                                                            "triangular_solve",
                                                            "view_as_complex"};

// Made of operators that a list may have; on the GPU's list some are themselves.
constexpr std::array<std::string_view, 45> kVaries = {"_convolution",
                                                      "_scaled_dot_product_attention_math",
                                                      "_weight_norm",
                                                      "bilinear",
                                                      "chain_matmul",
                                                      "corrcoef",
                                                      "cov",
                                                      "cumulative_trapezoid",
                                                      "einsum",
                                                      "fft_hfft2",
                                                      "fft_hfftn",
                                                      "fft_ihfft2",
                                                      "fft_ihfftn",
                                                      "gru",
                                                      "gru_cell",
                                                      "inner",
                                                      "instance_norm",
                                                      "istft",
                                                      "kron",
                                                      "linalg_matrix_power",
                                                      "linalg_multi_dot",
                                                      "linalg_norm",
                                                      "linalg_pinv",
                                                      "lstm",
                                                      "lstm_cell",
                                                      "matrix_exp",
                                                      "matrix_power",
                                                      "nanmean",
                                                      "norm_except_dim",
                                                      "pad",
                                                      "pairwise_distance",
                                                      "rnn_relu",
                                                      "rnn_relu_cell",
                                                      "rnn_tanh",
                                                      "rnn_tanh_cell",
                                                      "special_expm1",
                                                      "special_log1p",
                                                      "special_log_softmax",
                                                      "special_logsumexp",
                                                      "special_softmax",
                                                      "sum_to_size",
                                                      "tensordot",
                                                      "trapezoid",
                                                      "trapz",
                                                      "vander"};

// Normalisations take weights of a larger type than their input's: by statistics of the batch, and
// on CPUs others.
constexpr std::array<std::string_view, 6> kIgnoresWeights = {"_batch_norm_with_update",
                                                             "_native_batch_norm_legit",
                                                             "_native_batch_norm_legit_functional",
                                                             "batch_norm",
                                                             "instance_norm",
                                                             "native_batch_norm"};
constexpr std::array<std::string_view, 4> kIgnoresWeightsOnCpu = {
    "group_norm", "layer_norm", "native_group_norm", "native_layer_norm"};
// The type of their result is said by their arguments.
constexpr std::array<std::string_view, 3> kConversions = {"_to_copy", "to", "type_as"};
// They put operands of different types together, as copies of the largest.
constexpr std::array<std::string_view, 4> kJoins = {"cat", "concat", "index_copy", "stack"};

static_assert(std::is_sorted(kSmaller.begin(), kSmaller.end()));
static_assert(std::is_sorted(kSmallerOnGpu.begin(), kSmallerOnGpu.end()));
static_assert(std::is_sorted(kFloat32.begin(), kFloat32.end()));
static_assert(std::is_sorted(kFloat32OnGpu.begin(), kFloat32OnGpu.end()));
static_assert(std::is_sorted(kFloat32OnCpu.begin(), kFloat32OnCpu.end()));
static_assert(std::is_sorted(kVaries.begin(), kVaries.end()));

template <size_t N>
bool Contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::binary_search(names.begin(), names.end(), name);
}

bool Normalizes(std::string_view name) {
  return Contains(kIgnoresWeights, name) || Contains(kIgnoresWeightsOnCpu, name);
}

bool IsUpsampling(std::string_view name) {
  return name.starts_with("upsample_") || name.starts_with("_upsample_");
}

// Whether an argument says which type the result has.
bool AsksForType(const Node& node) {
  const auto is_type = [](const Argument& argument) {
    return std::holds_alternative<DType>(argument.value);
  };
  return std::any_of(node.args.begin(), node.args.end(), is_type) ||
         std::any_of(node.kwargs.begin(), node.kwargs.end(),
                     [&](const NamedArgument& given) { return is_type(given.value); });
}

// Padding with a constant is an operator of its own, on no list; other ways are made of some that
// are.
bool PadsWithConstant(const Node& node) {
  if (AtenName(node.target) != "pad") return false;
  const auto is_constant = [](const Argument& argument) {
    const auto* mode = std::get_if<std::string>(&argument.value);
    return mode == nullptr || *mode == "constant";
  };
  return std::all_of(node.args.begin(), node.args.end(), is_constant) &&
         std::all_of(node.kwargs.begin(), node.kwargs.end(),
                     [&](const NamedArgument& given) { return is_constant(given.value); });
}

AutocastRule RuleFor(const Node& node, AutocastList list) {
  return PadsWithConstant(node) ? AutocastRule::kAsTheyCome : RuleOf(node.target, list);
}

// The largest type of floating-point tensors that the node takes as they come; scalars count only
// where there is nothing else.
DType WidestOf(const Graph& graph, NodeId id, const std::vector<DType>& values,
               const std::vector<DType>& inputs, DType smaller, AutocastList list) {
  bool any = false, all_smaller = true, any_scalar = false, scalars_smaller = true;
  const auto add = [&](DType dtype, bool scalar) {
    if (!IsFloating(dtype)) return;
    (scalar ? any_scalar : any) = true;
    (scalar ? scalars_smaller : all_smaller) &= dtype == smaller;
  };
  const auto refs = graph.Values(id);
  for (size_t i = 0; i < refs.size(); ++i) add(values[i], graph.meta(refs[i]).shape.empty());
  const auto read = graph.Inputs(id);
  for (size_t i = 0; i < read.size(); ++i) add(inputs[i], graph.input(read[i]).meta.shape.empty());
  const std::string_view name = AtenName(graph.node(id).target);
  const bool ignores =
      list == AutocastList::kCpu ? Normalizes(name) : Contains(kIgnoresWeights, name);
  for (ParameterId p : graph.Parameters(id)) {
    if (!ignores) add(graph.parameter(p).dtype, graph.parameter(p).shape.empty());
  }
  if (ignores) any_scalar = false;
  const bool is_smaller = any ? all_smaller : any_scalar && scalars_smaller;
  return is_smaller ? smaller : DType::kFloat32;
}

}  // namespace

bool IsMixed(Precision precision) { return precision != Precision::kGraph; }

DType SmallerType(Precision precision) {
  CHECK(IsMixed(precision));
  return precision == Precision::kFloat16 ? DType::kFloat16 : DType::kBFloat16;
}

bool TakesSmallerType(std::string_view target) {
  return Contains(kSmaller, AtenName(target)) &&
         (target.ends_with(".default") || target.ends_with(".input"));
}

bool CastsWeights(const Graph& graph, NodeId node, Precision precision) {
  return IsMixed(precision) && TakesSmallerType(graph.node(node).target);
}

AutocastRule RuleOf(std::string_view target, AutocastList list) {
  const std::string_view name = AtenName(target);
  const bool cpu = list == AutocastList::kCpu;
  if (Contains(kSmaller, name)) return AutocastRule::kSmaller;
  if (!cpu && Contains(kSmallerOnGpu, name)) return AutocastRule::kSmaller;
  if (Contains(kFloat32, name)) return AutocastRule::kFloat32;
  if (cpu ? Contains(kFloat32OnCpu, name) : Contains(kFloat32OnGpu, name) || IsUpsampling(name))
    return AutocastRule::kFloat32;
  const bool varies = Contains(kVaries, name) || Contains(kConversions, name);
  return varies ? AutocastRule::kVaries : AutocastRule::kAsTheyCome;
}

AutocastTypes TypesOf(const Graph& graph, NodeId id, Precision precision,
                      const std::vector<DType>& values, const std::vector<DType>& inputs,
                      AutocastList list) {
  const Node& node = graph.node(id);
  const std::string_view name = AtenName(node.target);
  const DType smaller = SmallerType(precision);
  const AutocastRule rule = RuleFor(node, list);
  AutocastTypes types;
  types.operands = values;
  types.operands.insert(types.operands.end(), inputs.begin(), inputs.end());
  DType result = DType::kFloat32;
  if (rule == AutocastRule::kSmaller) {
    result = smaller;
  } else if (rule == AutocastRule::kAsTheyCome) {
    result = WidestOf(graph, id, values, inputs, smaller, list);
  }
  for (DType& operand : types.operands) {
    const bool up =
        rule == AutocastRule::kFloat32 || (Contains(kJoins, name) && result == DType::kFloat32);
    if (rule == AutocastRule::kSmaller && operand == DType::kFloat32) operand = smaller;
    if (up && operand == smaller) operand = DType::kFloat32;
  }
  types.widens = result == DType::kFloat32 && !Contains(kConversions, name);
  if (AsksForType(node)) result = DType::kFloat32;
  // What is not float32 in the graph is what the model asks for.
  for (const TensorMeta& meta : node.outputs) {
    const bool statistic = !types.results.empty() && Normalizes(name);
    types.results.push_back(meta.dtype == DType::kFloat32 && !statistic ? result : meta.dtype);
  }
  return types;
}

GraphTypes TypesOfGraph(const Graph& graph, Precision precision, AutocastList list) {
  GraphTypes types;
  types.nodes.resize(graph.size());
  types.values.resize(graph.size());
  std::set<ValueRef> states;
  for (const StateUpdate& update : graph.state_updates()) states.insert(update.value);
  for (const int32_t v : graph.dag().order()) {
    const NodeId id(v);
    if (graph.node(id).cost.has_value()) continue;
    for (const ValueRef& value : graph.Values(id)) {
      const bool known = !graph.node(value.node).cost.has_value();
      types.values[v].push_back(known ? types.nodes[value.node.index()].results[value.output]
                                      : graph.meta(value).dtype);
    }
    std::vector<DType> inputs;
    for (InputId input : graph.Inputs(id)) inputs.push_back(graph.input(input).meta.dtype);
    types.nodes[v] = TypesOf(graph, id, precision, types.values[v], inputs, list);
    for (auto state = states.lower_bound({id, 0}); state != states.end() && state->node == id;
         ++state)
      types.nodes[v].results[state->output] = graph.meta(*state).dtype;
  }
  return types;
}

MessageTypes::MessageTypes(const Graph& graph, Precision precision)
    : graph_(&graph), precision_(precision) {
  if (!IsMixed(precision)) return;
  const GraphTypes on_gpu = TypesOfGraph(graph, precision, AutocastList::kGpu);
  const GraphTypes on_cpu = TypesOfGraph(graph, precision, AutocastList::kCpu);
  types_.resize(graph.size());
  copied_.resize(graph.size());
  for (int32_t v = 0; v < graph.size(); ++v) {
    const std::vector<TensorMeta>& outputs = graph.node(NodeId(v)).outputs;
    const bool known = !graph.node(NodeId(v)).cost.has_value();
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool agree = known && on_gpu.nodes[v].results[i] == on_cpu.nodes[v].results[i];
      types_[v].push_back(agree ? on_gpu.nodes[v].results[i] : outputs[i].dtype);
      const bool varies =
          known && outputs[i].dtype == DType::kFloat32 &&
          RuleFor(graph.node(NodeId(v)), AutocastList::kCpu) == AutocastRule::kVaries;
      copied_[v].push_back((known && !agree) || varies);
    }
  }
}

}  // namespace stagewright
