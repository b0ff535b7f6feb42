#include "common/training/autocast.h"

#include <algorithm>
#include <array>

#include "common/base/check.h"
#include "common/graph/aten.h"

namespace stagewright {
namespace {

// Sorted, as are the others. On LibTorch's lists of both CPUs and GPUs.
constexpr std::array<std::string_view, 16> kSmaller = {"addbmm",
                                                       "addmm",
                                                       "baddbmm",
                                                       "bmm",
                                                       "conv1d",
                                                       "conv2d",
                                                       "conv3d",
                                                       "conv_transpose1d",
                                                       "conv_transpose2d",
                                                       "conv_transpose3d",
                                                       "linalg_vecdot",
                                                       "linear",
                                                       "matmul",
                                                       "mm",
                                                       "prelu",
                                                       "scaled_dot_product_attention"};

constexpr std::array<std::string_view, 46> kFloat32 = {"binary_cross_entropy_with_logits",
                                                       "cdist",
                                                       "cosh",
                                                       "cosine_embedding_loss",
                                                       "cosine_similarity",
                                                       "cross_entropy_loss",
                                                       "cumprod",
                                                       "cumsum",
                                                       "dist",
                                                       "exp",
                                                       "expm1",
                                                       "group_norm",
                                                       "hinge_embedding_loss",
                                                       "huber_loss",
                                                       "kl_div",
                                                       "l1_loss",
                                                       "layer_norm",
                                                       "linalg_vector_norm",
                                                       "log",
                                                       "log10",
                                                       "log1p",
                                                       "log2",
                                                       "log_softmax",
                                                       "logsumexp",
                                                       "margin_ranking_loss",
                                                       "mse_loss",
                                                       "multi_margin_loss",
                                                       "native_layer_norm",
                                                       "nll_loss",
                                                       "nll_loss2d",
                                                       "norm",
                                                       "poisson_nll_loss",
                                                       "pow",
                                                       "prod",
                                                       "reciprocal",
                                                       "renorm",
                                                       "rms_norm",
                                                       "rsqrt",
                                                       "sinh",
                                                       "smooth_l1_loss",
                                                       "soft_margin_loss",
                                                       "softmax",
                                                       "softplus",
                                                       "sum",
                                                       "tan",
                                                       "triplet_margin_loss"};

// Normalisations by statistics of the batch take weights of a larger type than their input's.
constexpr std::array<std::string_view, 4> kIgnoresWeights = {
    "_native_batch_norm_legit", "batch_norm", "instance_norm", "native_batch_norm"};
// The type of their result is said by their arguments.
constexpr std::array<std::string_view, 3> kConversions = {"_to_copy", "to", "type_as"};
// They put operands of different types together, as copies of the largest.
constexpr std::array<std::string_view, 3> kJoins = {"cat", "concat", "stack"};

static_assert(std::is_sorted(kSmaller.begin(), kSmaller.end()));
static_assert(std::is_sorted(kFloat32.begin(), kFloat32.end()));

template <size_t N>
bool Contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::binary_search(names.begin(), names.end(), name);
}

// The largest type of floating-point tensors that the node takes as they come; scalars count only
// where there is nothing else.
DType WidestOf(const Graph& graph, NodeId id, const std::vector<DType>& values,
               const std::vector<DType>& inputs, DType smaller, DType otherwise) {
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
  if (Contains(kIgnoresWeights, AtenName(graph.node(id).target))) {
    return any && all_smaller ? smaller : otherwise;
  }
  for (ParameterId p : graph.Parameters(id))
    add(graph.parameter(p).dtype, graph.parameter(p).shape.empty());
  if (any ? all_smaller : any_scalar && scalars_smaller) return smaller;
  return otherwise;
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

AutocastTypes TypesOf(const Graph& graph, NodeId id, Precision precision,
                      const std::vector<DType>& values, const std::vector<DType>& inputs) {
  const Node& node = graph.node(id);
  const std::string_view name = AtenName(node.target);
  const DType smaller = SmallerType(precision);
  const bool takes_smaller = Contains(kSmaller, name);
  const bool takes_float32 = Contains(kFloat32, name) || name.starts_with("upsample_");
  AutocastTypes types;
  types.operands = values;
  types.operands.insert(types.operands.end(), inputs.begin(), inputs.end());
  DType result = DType::kFloat32;
  if (takes_smaller) {
    result = smaller;
  } else if (!takes_float32 && !Contains(kConversions, name)) {
    result = WidestOf(graph, id, values, inputs, smaller, DType::kFloat32);
  }
  for (DType& operand : types.operands) {
    const bool up = takes_float32 || (Contains(kJoins, name) && result == DType::kFloat32);
    if (takes_smaller && operand == DType::kFloat32) operand = smaller;
    if (up && operand == smaller) operand = DType::kFloat32;
  }
  types.widens = result == DType::kFloat32 && !Contains(kConversions, name);
  // What is not float32 in the graph is what the model asks for.
  for (const TensorMeta& meta : node.outputs)
    types.results.push_back(meta.dtype == DType::kFloat32 ? result : meta.dtype);
  return types;
}

GraphTypes TypesOfGraph(const Graph& graph, Precision precision) {
  GraphTypes types;
  types.nodes.resize(graph.size());
  types.values.resize(graph.size());
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
    types.nodes[v] = TypesOf(graph, id, precision, types.values[v], inputs);
  }
  return types;
}

}  // namespace stagewright
