// Values go from stage to stage in the types that they have within one, so that a job in mixed
// precision computes the same to the bit however it is cut.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/cost/analytic.h"
#include "common/graph/aten.h"
#include "common/graph/operators/allowed_operators.h"
#include "common/lowering/lower.h"
#include "common/training/autocast.h"
#include "common/validation/validate.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/mixed_models.h"
#include "tests/worker_daemon/support/plans/forced_strategies.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/test_models.h"
#include "worker_daemon/messages/message.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/stage/stage_module.h"
#include "worker_daemon/torch/tensor_types.h"

namespace stagewright::testing {
namespace {

// Operators whose tensors a list has put into the largest of their types, which is what we say of
// those on no list.
const std::set<std::string_view> kPromoted = {
    "addcdiv",      "addcmul",    "atan2",     "bilinear",    "cat",   "cross",     "dot",
    "grid_sampler", "index_copy", "index_put", "scatter_add", "stack", "tensordot", "vdot"};

// Those that are made of one on the list.
const std::set<std::string_view> kMadeOfOne = {"cross_entropy_loss", "linalg_matmul",
                                               "nll_loss_nd"};

// On the lists of LibTorch 2.13 and not on those of 2.11, which drives GPUs: messages are cast as
// the rule says.
const std::set<std::string_view> kNewer = {"rms_norm"};
constexpr bool kOlder = TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13;

// The lists themselves, for all operators that graphs may name.
TEST(MessageTypes, RulesAreThoseOfTheLists) {
  const std::vector<c10::OperatorName> names = c10::Dispatcher::singleton().getAllOpNames();
  for (const auto& [list, key] : {std::pair(AutocastList::kCpu, c10::DispatchKey::AutocastCPU),
                                  std::pair(AutocastList::kGpu, c10::DispatchKey::AutocastCUDA)}) {
    std::set<std::string> listed;  // Names of which an overload is on the list.
    std::vector<std::pair<std::string, bool>> targets;
    for (const c10::OperatorName& name : names) {
      if (!name.name.starts_with("aten::")) continue;
      const std::string overload = name.overload_name.empty() ? "default" : name.overload_name;
      const std::string target = absl::StrCat("aten.", name.name.substr(6), ".", overload);
      if (!IsAllowedOperator(target)) continue;
      const auto handle = c10::Dispatcher::singleton().findOp(name);
      const bool on_list = handle->hasKernelForDispatchKey(key);
      targets.emplace_back(target, on_list);
      if (on_list) listed.insert(std::string(AtenName(target)));
    }
    ASSERT_GT(listed.size(), 80u);
    for (const auto& [target, on_list] : targets) {
      const std::string_view name = AtenName(target);
      const AutocastRule rule = RuleOf(target, list);
      const bool casts = rule == AutocastRule::kSmaller || rule == AutocastRule::kFloat32;
      if (on_list) {
        EXPECT_TRUE(casts || kPromoted.contains(name) || rule == AutocastRule::kVaries)
            << target << " is on list " << static_cast<int>(list);
      } else if (casts && !listed.contains(std::string(name)) && !kMadeOfOne.contains(name)) {
        EXPECT_TRUE(target.ends_with(".vec") || (kOlder && kNewer.contains(name)))
            << target << " is not on list " << static_cast<int>(list);
      }
    }
  }
}

// Operators of each sort, one upon the other.
Graph ManyOperators() {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 8});
  const int target = make.AddInput("target", {-1}, DType::kInt64);
  make.data.inputs[target].role = InputRole::kTarget;
  const auto weight = [&](const std::string& name) { return Param(make.AddParameter(name, {8})); };
  const auto add = [&](const std::string& name, std::vector<Argument> arguments,
                       std::vector<NamedArgument> named = {}) {
    return Value(
        make.AddNode("aten." + name, std::move(arguments), {Meta({-1, 8})}, std::move(named)));
  };
  const Argument first = Value(make.AddLinear("a", In(x), 8, 8));
  Argument last = first;
  for (const char* name :
       {"relu", "gelu", "tanh", "sigmoid", "silu", "abs", "neg", "exp", "softplus", "rsqrt",
        "alias", "clone", "detach", "zeros_like", "ones_like"}) {
    if (name == std::string("rsqrt")) last = add("clamp_min.default", {last, Real(1)});
    const Argument made = add(absl::StrCat(name, ".default"), {last});
    if (std::string(name).find("like") == std::string::npos && name != std::string("detach"))
      last = made;
  }
  add("softmax.int", {first, Int(1)});
  add("softmax.int", {first, Int(1), {DType::kFloat32}});
  add("log_softmax.int", {first, Int(1)});
  add("zeros_like.default", {first}, {{"dtype", {DType::kFloat32}}});
  add("to.dtype", {first, {DType::kFloat32}});
  add("pow.Tensor_Scalar", {first, Int(2)});
  add("cumsum.default", {first, Int(1)});
  add("layer_norm.default", {first, List({Int(8)}), weight("n.w"), weight("n.b")});
  add("layer_norm.default", {In(x), List({Int(8)}), weight("m.w"), weight("m.b")});
  add("group_norm.default", {first, Int(2), weight("g.w"), weight("g.b")});
  add("masked_fill.Scalar", {first, add("isnan.default", {first}), Real(0)});
  make.data.nodes[make.data.nodes.size() - 2].outputs[0].dtype = DType::kBool;
  add("add.Tensor", {first, In(x)});
  add("add.Tensor", {first, last});
  add("mul.Tensor", {first, weight("scale")});
  add("maximum.default", {first, last});
  add("lerp.Scalar", {first, last, Real(0.5)});
  add("dropout.default", {first, Real(0.5), Bool(true)});
  make.AddNode("aten.pad.default", {first, List({Int(1), Int(1)})}, {Meta({-1, 10})});
  add("cat.default", {List({Value(make.AddNode("aten.slice.Tensor", {first, Int(1), Int(0), Int(4)},
                                               {Meta({-1, 4})})),
                            Value(make.AddNode("aten.slice.Tensor", {In(x), Int(1), Int(0), Int(4)},
                                               {Meta({-1, 4})}))}),
                      Int(1)});
  const Argument t =
      Value(make.AddNode("aten.permute.default", {first, List({Int(1), Int(0)})}, {Meta({8, -1})}));
  make.AddNode("aten.sum.dim_IntList", {first, List({Int(1)})}, {Meta({-1})});
  make.AddNode("aten.mean.dim", {first, List({Int(1)})}, {Meta({-1})});
  make.AddNode("aten.amax.default", {t, List({Int(0)})}, {Meta({-1})});
  make.AddNode("aten.max.dim", {first, Int(1)}, {Meta({-1}), Meta({-1}, DType::kInt64)});
  make.AddNode("aten.native_layer_norm.default",
               {first, List({Int(8)}), weight("k.w"), weight("k.b"), Real(1e-5)},
               {Meta({-1, 8}), Meta({-1, 1}), Meta({-1, 1})});
  const int head = make.AddLinear("head", last, 8, 8);
  const int loss =
      make.AddNode("aten.cross_entropy_loss.default", {Value(head), In(target)}, {Meta({})});
  ToFloat32(make);
  return make.Finish(loss, head);
}

// Runs the graph in one piece on the CPU and compares the type of each of its values.
void ExpectTypes(const Graph& graph, const std::string& weights) {
  constexpr int64_t kSamples = 4;
  std::vector<ParameterId> ids;
  for (size_t i = 0; i < graph.parameters().size(); ++i)
    ids.push_back(ParameterId(static_cast<int64_t>(i)));
  auto store = ParameterStore::Load(graph, ids, weights, at::kCPU);
  ASSERT_TRUE(store.ok()) << store.status();
  std::vector<ValueRef> values;
  for (int32_t v = 0; v < graph.size(); ++v) {
    for (size_t i = 0; i < graph.node(NodeId(v)).outputs.size(); ++i)
      values.push_back({NodeId(v), static_cast<int32_t>(i)});
  }
  StageOptions options;
  options.mini_batch = kSamples;
  for (const Precision precision : {Precision::kBFloat16, Precision::kFloat16}) {
    options.precision = precision;
    auto module = StageModule::Create(graph, WholeGraph(graph), values, *store, options);
    ASSERT_TRUE(module.ok()) << module.status();
    StageModule::Tensors tensors;
    for (InputId input : (*module)->inputs()) {
      const TensorMeta& meta = graph.input(input).meta;
      const auto type = ToScalarType(meta.dtype);
      tensors.inputs.push_back(IsFloating(meta.dtype) ? Random(ShapeAt(meta, kSamples), 1, type)
                                                      : at::zeros(ShapeAt(meta, kSamples), type));
    }
    const auto result =
        (*module)->Forward({0, {0, kSamples}}, std::move(tensors), StageModule::Keep::kGraph);
    ASSERT_TRUE(result.ok()) << result.status();
    const GraphTypes types = TypesOfGraph(graph, precision, AutocastList::kCpu);
    const MessageTypes messages(graph, precision);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto [node, output] = values[i];
      const at::ScalarType found = result->outputs[i].scalar_type();
      // Statistics are nobody else's.
      if (output == 0) {
        EXPECT_EQ(found, ToScalarType(types.nodes[node.index()].results[output]))
            << graph.node(node).target << " " << graph.node(node).name;
      }
      EXPECT_EQ(at::promote_types(found, ToScalarType(messages[values[i]])),
                ToScalarType(messages[values[i]]))
          << "no message is smaller than what it carries: " << graph.node(node).target;
    }
    EXPECT_EQ(result->loss.scalar_type(), ToScalarType(graph.meta(*graph.loss()).dtype));
  }
}

TEST(MessageTypes, AreThoseOfTheOperators) {
  const Graph graph = ManyOperators();
  ExpectTypes(graph, WriteWeights(graph, "many_operators.safetensors"));
}

TEST(MessageTypes, AreThoseOfTheModels) {
  for (const char* name : {"chain", "conv", "transformer", "tied", "skip", "two_branches",
                           "buffers", "dropout", "shared", "frozen"}) {
    SCOPED_TRACE(name);
    const Model model = LoadModel(absl::StrCat(name, "_f32"));
    if (!model.graph->totals().values.empty()) continue;
    ExpectTypes(*model.graph, model.weights);
  }
}

TEST(MessageTypes, AProductTakesHalfTheBytes) {
  const Model model = LoadModel("chain_f32");
  const Graph& graph = *model.graph;
  const auto linear = std::find_if(graph.nodes().begin(), graph.nodes().end(),
                                   [](const Node& n) { return n.target == "aten.linear.default"; });
  ASSERT_NE(linear, graph.nodes().end());
  const std::vector<ValueRef> values = {{NodeId(linear - graph.nodes().begin()), 0}};
  const MessageTypes wide(graph, Precision::kGraph), small(graph, Precision::kBFloat16);
  EXPECT_EQ(2 * MessageLayout(small, values, 6).bytes(), MessageLayout(wide, values, 6).bytes());
}

absl::StatusOr<TrainingResult> Train(const Model& model, const StrategyShape& shape, uint64_t seed,
                                     Precision precision) {
  std::mt19937_64 random(seed);
  const Strategy strategy = ForceStrategy(*model.graph, shape, random);
  const auto costs = MakeAnalyticCostModel(*model.graph, precision);
  ASSIGN_OR_RETURN(Program program, Lower(*model.graph, strategy, *costs, {}));
  RETURN_IF_ERROR(Validate(program, {}));
  DeviceJob spec =
      JobOf(model, std::make_shared<const Program>(std::move(program)), Optimizer::kSgd, 3);
  spec.training.precision = precision;
  return TrainLocally(spec);
}

// Chains, branches that two stages read, convolutions, attention; stages on devices of their own
// and on shared ones, and forward passes that are repeated.
TEST(MessageTypes, ACutJobComputesTheSameToTheBit) {
  at::set_num_threads(1);
  for (const char* name : {"chain", "conv", "transformer", "skip", "two_branches"}) {
    const Model model = LoadModel(absl::StrCat(name, "_f32"));
    const auto whole = Train(model, {.stages = 1, .micro_batches = 2}, 1, Precision::kBFloat16);
    ASSERT_TRUE(whole.ok()) << whole.status();
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(absl::StrCat(name, " ", seed));
      const auto cut = Train(model,
                             {.stages = 2 + static_cast<int>(seed % 3),
                              .share_devices = seed == 3,
                              .same_micro_batch = true,
                              .micro_batches = 2,
                              .recompute = seed % 2 == 0},
                             seed, Precision::kBFloat16);
      ASSERT_TRUE(cut.ok()) << cut.status();
      EXPECT_EQ(cut->losses, whole->losses);
      for (const auto& [parameter, value] : whole->parameters)
        EXPECT_TRUE(at::equal(cut->parameters.at(parameter), value)) << parameter;
    }
  }
}

// On CPUs a softmax of bfloat16 values is one, on GPUs float32: it is sent so, and taken as what it
// would be in the reader's own stage.
TEST(MessageTypes, WhereTheListsDifferAReaderTakesItsOwnType) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 12});
  const int target = make.AddInput("target", {-1}, DType::kInt64);
  make.data.inputs[target].role = InputRole::kTarget;
  int last = make.AddLinear("stem", In(x), 12, 16);
  for (int block = 0; block < 3; ++block) {
    const int gate = make.AddNode("aten.softmax.int", {Value(last), Int(1)}, {Meta({-1, 16})});
    last = make.AddNode("aten.mul.Tensor", {Value(last), Value(gate)}, {Meta({-1, 16})});
    last = make.AddNode("aten.add.Tensor", {Value(last), Value(gate)}, {Meta({-1, 16})});
  }
  const int head = make.AddLinear("head", Value(last), 16, 5);
  const int loss =
      make.AddNode("aten.cross_entropy_loss.default", {Value(head), In(target)}, {Meta({})});
  ToFloat32(make);
  DeviceJob spec = ClassifierJob("gated", /*dropout=*/false, 3);
  spec.graph = std::make_shared<const Graph>(make.Finish(loss, head));
  spec.weights_path = WriteWeights(*spec.graph, "gated_own_weights.safetensors");
  spec.training.precision = Precision::kBFloat16;
  UseOneDevice(spec, 2);
  const auto whole = TrainLocally(spec);
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    UsePlan(spec, {.stages = 4, .same_micro_batch = true, .micro_batches = 2}, seed);
    const auto cut = TrainLocally(spec);
    ASSERT_TRUE(cut.ok()) << cut.status();
    EXPECT_EQ(cut->losses, whole->losses);
  }
}

}  // namespace
}  // namespace stagewright::testing
