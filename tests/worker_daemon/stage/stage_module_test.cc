#include "worker_daemon/stage/stage_module.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker_daemon/support/runnable_graphs.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;
using Keep = StageModule::Keep;

std::vector<ParameterId> AllParameters(const Graph& graph) {
  std::vector<ParameterId> ids;
  for (size_t i = 0; i < graph.parameters().size(); ++i) ids.emplace_back(i);
  return ids;
}

ParameterStore LoadAll(const Graph& graph, const std::string& name) {
  auto store =
      ParameterStore::Load(graph, AllParameters(graph), WriteWeights(graph, name), at::kCPU);
  EXPECT_TRUE(store.ok()) << store.status();
  return *std::move(store);
}

std::unique_ptr<StageModule> Build(const Graph& graph, const ProgramStage& stage,
                                   std::vector<ValueRef> outputs, const ParameterStore& store,
                                   StageOptions options) {
  auto module = StageModule::Create(graph, stage, std::move(outputs), store, options);
  EXPECT_TRUE(module.ok()) << module.status();
  return *std::move(module);
}

absl::Status BuildError(const Graph& graph, StageOptions options = {}) {
  const ParameterStore store = LoadAll(graph, "error.safetensors");
  return StageModule::Create(graph, WholeGraph(graph), {}, store, options).status();
}

// x -> linear -> tanh -> linear -> mse(target).
Graph Perceptron(LossReduction reduction = LossReduction::kMean) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 4});
  const int target = make.AddInput("target", {-1, 3});
  const int hidden = make.AddLinear("first", In(x), 4, 5);
  const int tanh = make.AddNode("aten.tanh.default", {Value(hidden)}, {Meta({-1, 5})});
  const int out = make.AddLinear("second", Value(tanh), 5, 3);
  const int mode = reduction == LossReduction::kMean ? 1 : 2;
  const int loss =
      make.AddNode("aten.mse_loss.default", {Value(out), In(target), Int(mode)}, {Meta({})});
  return make.Finish(loss, out, reduction);
}

// The gradients that PyTorch's own autograd gives for the whole mini-batch.
std::vector<at::Tensor> Expected(const ParameterStore& store, const at::Tensor& x,
                                 const at::Tensor& target, int64_t reduction) {
  std::vector<at::Tensor> leaves;
  for (ParameterId id : store.ids()) leaves.push_back(store[id].detach().clone().requires_grad_());
  const at::Tensor hidden = at::tanh(at::linear(x, leaves[0], leaves[1]));
  at::mse_loss(at::linear(hidden, leaves[2], leaves[3]), target, reduction).backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& leaf : leaves) gradients.push_back(leaf.grad());
  return gradients;
}

class MicroBatches : public ::testing::TestWithParam<std::tuple<LossReduction, int>> {};

TEST_P(MicroBatches, AddUpToTheGradientOfTheMiniBatch) {
  const auto [reduction, size] = GetParam();
  const Graph graph = Perceptron(reduction);
  const ParameterStore store = LoadAll(graph, "perceptron.safetensors");
  const auto module = Build(graph, WholeGraph(graph), {}, store, {.mini_batch = 7});
  ASSERT_TRUE(module->has_loss());
  ASSERT_TRUE(module->received().empty());
  const at::Tensor x = Random({7, 4}, 11), target = Random({7, 3}, 12);
  for (int64_t begin = 0; begin < 7; begin += size) {
    const SampleRange range{begin, std::min<int64_t>(7, begin + size)};
    const auto forward = module->Forward(
        {0, range},
        {{}, {x.slice(0, range.begin, range.end), target.slice(0, range.begin, range.end)}},
        Keep::kGraph);
    ASSERT_TRUE(forward.ok()) << forward.status();
    EXPECT_EQ(forward->prediction.size(0), range.size());
  }
  for (int64_t begin = 0; begin < 7; begin += size) {
    const auto backward = module->Backward({0, {begin, std::min<int64_t>(7, begin + size)}}, {});
    ASSERT_TRUE(backward.ok()) << backward.status();
  }
  const auto expected = Expected(store, x, target, reduction == LossReduction::kMean ? 1 : 2);
  for (size_t i = 0; i < store.ids().size(); ++i) {
    EXPECT_LT(RelativeError(store[store.ids()[i]].grad(), expected[i]), 1e-14) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MicroBatches,
                         ::testing::Combine(::testing::Values(LossReduction::kMean,
                                                              LossReduction::kSum),
                                            ::testing::Values(1, 2, 3, 7)));

// The perceptron cut after its tanh, the gradient handed over by hand; by way of `backward`.
enum class Mode { kWhole, kHalves, kRecompute };
class TwoStages : public ::testing::TestWithParam<Mode> {};

TEST_P(TwoStages, GiveTheGradientsOfOne) {
  const Graph graph = Perceptron();
  const ParameterStore store = LoadAll(graph, "two.safetensors");
  const ValueRef cut{NodeId(1), 0};
  ProgramStage first = WholeGraph(graph), second = first;
  first.nodes = {NodeId(0), NodeId(1)};
  second.nodes = {NodeId(2), NodeId(3)};
  const StageOptions options{.mini_batch = 6, .split_backward = GetParam() == Mode::kHalves};
  const auto a = Build(graph, first, {cut}, store, options);
  const auto b = Build(graph, second, {}, store, options);
  ASSERT_THAT(b->received(), ::testing::ElementsAre(cut));
  EXPECT_TRUE(b->needs_gradient(0));
  const at::Tensor x = Random({6, 4}, 11), target = Random({6, 3}, 12);
  const Keep keep = GetParam() == Mode::kRecompute ? Keep::kInputs : Keep::kGraph;
  for (const SampleRange range : {SampleRange{0, 4}, SampleRange{4, 6}}) {
    const auto front = a->Forward({0, range}, {{}, {x.slice(0, range.begin, range.end)}}, keep);
    ASSERT_TRUE(front.ok()) << front.status();
    EXPECT_FALSE(front->outputs[0].requires_grad());
    const auto back =
        b->Forward({0, range}, {front->outputs, {target.slice(0, range.begin, range.end)}}, keep);
    ASSERT_TRUE(back.ok()) << back.status();
  }
  for (const SampleRange range : {SampleRange{0, 4}, SampleRange{4, 6}}) {
    if (GetParam() == Mode::kRecompute) {
      ASSERT_TRUE(a->Recompute({0, range}, {x.slice(0, range.begin, range.end)}).ok());
      ASSERT_TRUE(b->Recompute({0, range}, {target.slice(0, range.begin, range.end)}).ok());
    }
    const bool halves = GetParam() == Mode::kHalves;
    const auto gradients = halves ? b->BackwardInput({0, range}, {}) : b->Backward({0, range}, {});
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    if (halves) {
      ASSERT_TRUE(a->BackwardInput({0, range}, *gradients).ok());
      ASSERT_TRUE(b->BackwardWeight({0, range}).ok());
      ASSERT_TRUE(a->BackwardWeight({0, range}).ok());
    } else {
      ASSERT_TRUE(a->Backward({0, range}, *gradients).ok());
    }
  }
  const auto expected = Expected(store, x, target, 1);
  for (size_t i = 0; i < store.ids().size(); ++i) {
    EXPECT_LT(RelativeError(store[store.ids()[i]].grad(), expected[i]), 1e-14) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TwoStages,
                         ::testing::Values(Mode::kWhole, Mode::kHalves, Mode::kRecompute));

// A copy in the graph's type would be a language model's largest tensor, for each micro-batch.
TEST(StageModule, APredictionIsOfTheTypeThatItWasComputedIn) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 4}, DType::kFloat32);
  const int target = make.AddInput("target", {-1, 3}, DType::kFloat32);
  const int out = make.AddLinear("only", In(x), 4, 3);
  const int loss =
      make.AddNode("aten.mse_loss.default", {Value(out), In(target), Int(1)}, {Meta({})});
  for (Parameter& parameter : make.data.parameters) parameter.dtype = DType::kFloat32;
  for (Node& node : make.data.nodes) node.outputs[0].dtype = DType::kFloat32;
  const Graph graph = make.Finish(loss, out, LossReduction::kMean);
  const ParameterStore store = LoadAll(graph, "mixed.safetensors");
  const auto module = Build(graph, WholeGraph(graph), {}, store,
                            {.mini_batch = 7, .precision = Precision::kBFloat16});
  const auto forward = module->Forward(
      {0, {0, 7}}, {{}, {Random({7, 4}, 11, at::kFloat), Random({7, 3}, 12, at::kFloat)}},
      Keep::kGraph);
  ASSERT_TRUE(forward.ok()) << forward.status();
  EXPECT_EQ(forward->prediction.scalar_type(), at::kBFloat16);
  EXPECT_EQ(forward->loss.scalar_type(), at::kFloat);
}

TEST(StageModule, NumbersListsOptionalsAndSizesBecomeWhatTheSchemaWants) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 4});
  // A number where a tensor is wanted; a keyword; a missing default; an integer for a float.
  const int plus =
      make.AddNode("aten.add.Tensor", {In(x), Int(1)}, {Meta({-1, 4})}, {{"alpha", Int(3)}});
  const int clamp =
      make.AddNode("aten.clamp.default", {Value(plus), Real(-2), Nothing()}, {Meta({-1, 4})});
  // A list with a symbolic size.
  const int view =
      make.AddNode("aten.view.default", {Value(clamp), List({Batch(2), Int(2)})}, {Meta({-2, 2})});
  // Several outputs, and a list of tensors.
  const int parts = make.AddNode("aten.split.Tensor", {Value(view), Int(1), Int(1)},
                                 {Meta({-2, 1}), Meta({-2, 1})});
  const int cat = make.AddNode(
      "aten.cat.default", {List({Value(parts, 1), Value(parts, 0)}), Int(-1)}, {Meta({-2, 2})});
  // A factory: gets the stage's device. A list of optional tensors.
  const int order = make.AddNode("aten.arange.start_step", {Int(1), Int(-1), Int(-1)},
                                 {Meta({2}, DType::kInt64)}, {{"dtype", {DType::kInt64}}});
  const int index = make.AddNode("aten.index.Tensor", {Value(cat), List({Nothing(), Value(order)})},
                                 {Meta({-2, 2})});
  const int cast = make.AddNode("aten.to.dtype", {Value(index), {DType::kFloat32}},
                                {Meta({-2, 2}, DType::kFloat32)},
                                {{"memory_format", {MemoryFormat{"contiguous_format"}}}});
  const int loss = make.AddNode("aten.sum.default", {Value(cast)}, {Meta({}, DType::kFloat32)});
  const Graph graph = make.Finish(loss, cast);
  const ParameterStore store = LoadAll(graph, "none.safetensors");
  const auto module = Build(graph, WholeGraph(graph), {}, store, {.mini_batch = 3});
  const at::Tensor input = Random({3, 4}, 5);
  const auto result = module->Forward({0, {0, 3}}, {{}, {input}}, Keep::kNothing);
  ASSERT_TRUE(result.ok()) << result.status();
  // The columns are swapped twice.
  const at::Tensor expected = at::clamp_min(input + 3, -2).view({6, 2}).to(at::kFloat);
  EXPECT_TRUE(at::equal(result->prediction, expected));
}

TEST(StageModule, UnknownOperatorIsNamedBeforeAnythingRuns) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 4});
  const int loss = make.AddNode("aten.frobnicate.default", {In(x)}, {Meta({})});
  const absl::Status status = BuildError(make.Finish(loss));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"n0\" (aten.frobnicate.default)"));
}

TEST(StageModule, ArgumentsThatDoNotFitTheSchemaAreNamed) {
  const auto message = [](std::string target, std::vector<Argument> args,
                          std::vector<NamedArgument> kwargs) {
    GraphMaker make;
    make.AddInput("x", {-1, 4});
    const int loss =
        make.AddNode(std::move(target), std::move(args), {Meta({})}, std::move(kwargs));
    return std::string(BuildError(make.Finish(loss)).message());
  };
  EXPECT_THAT(message("aten.softmax.int", {In(0), {std::string("none")}}, {}),
              HasSubstr("argument \"dim\" is not a value of type int"));
  EXPECT_THAT(message("aten.softmax.int", {In(0)}, {}), HasSubstr("\"dim\" is missing"));
  EXPECT_THAT(message("aten.tanh.default", {In(0), In(0)}, {}), HasSubstr("2 given, 1 taken"));
  EXPECT_THAT(message("aten.tanh.default", {In(0)}, {{"speed", Int(1)}}), HasSubstr("\"speed\""));
  EXPECT_THAT(message("aten.tanh_.default", {In(0)}, {}), HasSubstr("change their arguments"));
  EXPECT_THAT(message("aten.rand_like.default", {In(0)}, {}), HasSubstr("random numbers"));
  EXPECT_THAT(message("tanh", {In(0)}, {}), HasSubstr("no such operator"));
}

TEST(StageModule, FailingOperatorAndWrongShapesAreNamed) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 4});
  const int weight = make.AddParameter("weight", {5, 4});
  const int out = make.AddNode("aten.linear.default", {In(x), Param(weight)}, {Meta({-1, 6})});
  const int loss = make.AddNode("aten.sum.default", {Value(out)}, {Meta({})});
  const Graph graph = make.Finish(loss);
  const ParameterStore store = LoadAll(graph, "shape.safetensors");
  const auto module = Build(graph, WholeGraph(graph), {}, store, {.mini_batch = 2});
  auto result = module->Forward({0, {0, 2}}, {{}, {Random({2, 4}, 1)}}, Keep::kGraph);
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("\"n0\" (aten.linear.default): output 0 is float64[2, 5], the graph says "
                        "float64[2, 6] for 2 samples"));
  result = module->Forward({0, {0, 2}}, {{}, {Random({2, 3}, 1)}}, Keep::kGraph);
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("input \"x\" is float64[2, 3], the graph says float64[2, 4]"));
}

TEST(StageModule, FrozenParametersAndDetachedBranchesHaveNoBackward) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 4});
  const int frozen = make.AddParameter("frozen", {4, 4}, /*trainable=*/false);
  const int trained = make.AddParameter("trained", {4, 4});
  const int a = make.AddNode("aten.linear.default", {In(x), Param(frozen)}, {Meta({-1, 4})});
  const int b = make.AddNode("aten.linear.default", {In(x), Param(trained)}, {Meta({-1, 4})});
  const int cut = make.AddNode("aten.detach.default", {Value(b)}, {Meta({-1, 4})});
  const int sum = make.AddNode("aten.add.Tensor", {Value(a), Value(cut)}, {Meta({-1, 4})});
  const int loss = make.AddNode("aten.sum.default", {Value(sum)}, {Meta({})});
  const Graph graph = make.Finish(loss, -1, LossReduction::kSum);
  const ParameterStore store = LoadAll(graph, "frozen.safetensors");
  ProgramStage first = WholeGraph(graph), second = first;
  first.nodes = {NodeId(a), NodeId(b), NodeId(cut)};
  second.nodes = {NodeId(sum), NodeId(loss)};
  const std::vector<ValueRef> cuts = {{NodeId(a), 0}, {NodeId(cut), 0}};
  const auto front = Build(graph, first, cuts, store, {.mini_batch = 2});
  const auto back = Build(graph, second, {}, store, {.mini_batch = 2});
  EXPECT_FALSE(back->needs_gradient(0));
  const auto values = front->Forward({0, {0, 2}}, {{}, {Random({2, 4}, 1)}}, Keep::kGraph);
  ASSERT_TRUE(values.ok()) << values.status();
  ASSERT_TRUE(back->Forward({0, {0, 2}}, {values->outputs, {}}, Keep::kGraph).ok());
  const auto gradients = back->Backward({0, {0, 2}}, {});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_FALSE((*gradients)[0].defined());
  ASSERT_TRUE(front->Backward({0, {0, 2}}, *gradients).ok());
  EXPECT_FALSE(store[ParameterId(frozen)].grad().defined());
  EXPECT_FALSE(store[ParameterId(trained)].grad().defined());
}

TEST(StageModule, MicroBatchesThatWereNotForwardedAreRefused) {
  const Graph graph = Perceptron();
  const ParameterStore store = LoadAll(graph, "refused.safetensors");
  const auto module = Build(graph, WholeGraph(graph), {}, store, {.mini_batch = 4});
  EXPECT_EQ(module->Backward({0, {0, 2}}, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const StageModule::Tensors tensors{{}, {Random({2, 4}, 1), Random({2, 3}, 1)}};
  ASSERT_TRUE(module->Forward({0, {0, 2}}, tensors, Keep::kGraph).ok());
  EXPECT_EQ(module->Forward({0, {0, 2}}, tensors, Keep::kGraph).status().code(),
            absl::StatusCode::kFailedPrecondition);
  module->Reset();
  EXPECT_TRUE(module->Forward({0, {0, 2}}, tensors, Keep::kGraph).ok());
}

TEST(StageModule, BatchNormIsReportedAndEvaluatedWithItsStatistics) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 3});
  const int weight = make.AddParameter("weight", {3});
  const int bias = make.AddParameter("bias", {3});
  const int mean = make.AddParameter("running_mean", {3}, false);
  const int variance = make.AddParameter("running_var", {3}, false);
  const int norm = make.AddNode("aten.batch_norm.default",
                                {In(x), Param(weight), Param(bias), Param(mean), Param(variance),
                                 Bool(true), Real(0.1), Real(1e-5), Bool(false)},
                                {Meta({-1, 3})});
  const int loss = make.AddNode("aten.mean.default", {Value(norm)}, {Meta({})});
  make.data.nodes[norm].batch_dependent = true;
  const Graph graph = make.Finish(loss, norm);
  const std::string path = WriteWeights(graph, "norm.safetensors");
  const auto store = ParameterStore::Load(graph, AllParameters(graph), path, at::kCPU);
  ASSERT_TRUE(store.ok());
  at::Tensor running = (*store)[ParameterId(variance)];
  running.abs_().add_(0.5);
  const auto training = Build(graph, WholeGraph(graph), {}, *store, {.mini_batch = 4});
  EXPECT_THAT(training->batch_dependent(), ::testing::ElementsAre(NodeId(norm)));
  const auto evaluation =
      Build(graph, WholeGraph(graph), {}, *store, {.training = false, .mini_batch = 4});
  const at::Tensor input = Random({4, 3}, 1);
  const auto result = evaluation->Forward({0, {0, 4}}, {{}, {input}}, Keep::kNothing);
  ASSERT_TRUE(result.ok()) << result.status();
  const at::Tensor expected =
      at::batch_norm(input, (*store)[ParameterId(weight)], (*store)[ParameterId(bias)],
                     (*store)[ParameterId(mean)], running, false, 0.1, 1e-5, false);
  EXPECT_LT(RelativeError(result->prediction, expected), 1e-15);
}

TEST(ParameterStore, NamesWhatIsMissingOrHasAnotherShape) {
  const Graph graph = Perceptron();
  const std::string path = TempPath("bad_weights.safetensors");
  WriteTensors(path, {{"first.weight", Random({5, 4}, 1)}});
  auto store = ParameterStore::Load(graph, AllParameters(graph), path, at::kCPU);
  EXPECT_EQ(store.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(store.status().message()),
              HasSubstr(path + ": there is no tensor \"first.bias\""));
  WriteTensors(path, {{"first.weight", Random({4, 5}, 1)}});
  store = ParameterStore::Load(graph, AllParameters(graph), path, at::kCPU);
  EXPECT_THAT(std::string(store.status().message()),
              HasSubstr("\"first.weight\" is float64[4, 5], the graph says float64[5, 4]"));
}

}  // namespace
}  // namespace stagewright::testing
