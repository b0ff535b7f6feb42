// A backward pass in two halves gives what the whole pass gives, does its work once and keeps only
// what the second half needs.
#include "worker_daemon/stage/segmented_graph.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker_daemon/support/graph_totals.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/test_models.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/stage/stage_module.h"
#include "worker_daemon/torch/tensor_types.h"

namespace stagewright::testing {
namespace {

using ::testing::ElementsAre;
using Keep = StageModule::Keep;

// What LibTorch runs on this thread: how often which operator, and the bytes that it holds.
class Meter : public c10::MemoryReportingInfoBase {
 public:
  bool memoryProfilingEnabled() const override { return true; }
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    bytes += size;
  }
  int64_t bytes = 0;
};

// The products of matrices under way, in all: `multiplications` between construction and reading.
class CountMultiplications {
 public:
  CountMultiplications()
      : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction&
                                                                             function)
                                                                          -> std::unique_ptr<
                                                                              at::ObserverContext> {
          const std::string name = function.name();
          for (const char* product : {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"}) {
            if (name == product) ++count;
          }
          return nullptr;
        }))) {
    count = 0;
  }
  ~CountMultiplications() { at::removeCallback(handle_); }
  static thread_local int count;

 private:
  at::CallbackHandle handle_;
};
thread_local int CountMultiplications::count = 0;

std::vector<ParameterId> AllParameters(const Graph& graph) {
  std::vector<ParameterId> ids;
  for (size_t i = 0; i < graph.parameters().size(); ++i) ids.emplace_back(i);
  return ids;
}

// One stage, run as a whole and in halves, each with a store of its own.
class Runs {
 public:
  Runs(std::shared_ptr<const Graph> graph, const ProgramStage& stage, std::vector<ValueRef> outputs,
       const std::string& weights, int64_t mini_batch)
      : graph_(std::move(graph)) {
    for (const bool split : {false, true}) {
      auto store = ParameterStore::Load(*graph_, AllParameters(*graph_), weights, at::kCPU);
      EXPECT_TRUE(store.ok()) << store.status();
      stores_.push_back(std::make_unique<ParameterStore>(*std::move(store)));
      auto module = StageModule::Create(*graph_, stage, outputs, *stores_.back(),
                                        {.mini_batch = mini_batch, .split_backward = split});
      EXPECT_TRUE(module.ok()) << module.status();
      modules_.push_back(*std::move(module));
    }
  }

  const ParameterStore& store() const { return *stores_[0]; }
  StageModule& whole() { return *modules_[0]; }
  StageModule& halves() { return *modules_[1]; }

  // Forward and backward of one micro-batch in both ways; gradients of what was received compared.
  void Run(SampleRange range, const StageModule::Tensors& tensors,
           const std::vector<at::Tensor>& gradients, bool recompute = false) {
    for (StageModule* module : {&whole(), &halves()}) {
      const auto forward =
          module->Forward({0, range}, tensors, recompute ? Keep::kInputs : Keep::kGraph);
      ASSERT_TRUE(forward.ok()) << forward.status();
      if (recompute) {
        ASSERT_TRUE(module->Recompute({0, range}, tensors.inputs).ok());
      }
    }
    CountMultiplications count;
    const auto expected = whole().Backward({0, range}, gradients);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const int once = std::exchange(CountMultiplications::count, 0);
    const auto found = halves().BackwardInput({0, range}, gradients);
    ASSERT_TRUE(found.ok()) << found.status();
    const absl::Status weight = halves().BackwardWeight({0, range});
    ASSERT_TRUE(weight.ok()) << weight;
    EXPECT_EQ(CountMultiplications::count, once) << "matrix products";
    for (size_t i = 0; i < expected->size(); ++i) {
      ASSERT_EQ((*found)[i].defined(), (*expected)[i].defined()) << i;
      if (!(*found)[i].defined()) continue;
      EXPECT_LT(RelativeError((*found)[i], (*expected)[i]), 1e-12) << i;
    }
  }

  void CompareParameters() {
    int with_gradient = 0;
    for (ParameterId id : AllParameters(*graph_)) {
      const at::Tensor expected = (*stores_[0])[id].grad(), found = (*stores_[1])[id].grad();
      const std::string& name = graph_->parameter(id).name;
      ASSERT_EQ(found.defined(), expected.defined()) << name;
      if (!expected.defined()) continue;
      ++with_gradient;
      EXPECT_LT(RelativeError(found, expected), 1e-12) << name;
    }
    EXPECT_GT(with_gradient, 0);
  }

 private:
  std::shared_ptr<const Graph> graph_;
  std::vector<std::unique_ptr<ParameterStore>> stores_;
  std::vector<std::unique_ptr<StageModule>> modules_;
};

class OfAModel : public ::testing::TestWithParam<std::string> {};

TEST_P(OfAModel, HalvesGiveTheGradientsOfTheWhole) {
  const Model model = LoadModel(GetParam() + "_f64");
  const auto data = ReadTensors(model.data);
  ASSERT_TRUE(data.ok()) << data.status();
  Runs runs(model.graph, WholeGraph(*model.graph), {}, model.weights, 8);
  for (const bool recompute : {false, true}) {
    for (const SampleRange range : {SampleRange{0, 3}, SampleRange{3, 8}}) {
      StageModule::Tensors tensors;
      for (InputId input : runs.whole().inputs()) {
        tensors.inputs.push_back(
            data->at(model.graph->input(input).name).slice(0, range.begin, range.end));
      }
      tensors.totals = TotalsOf(
          *model.graph, runs.store(),
          [&](InputId id) { return data->at(model.graph->input(id).name).slice(0, 0, 8); }, 8);
      runs.Run(range, tensors, {}, recompute);
    }
  }
  runs.CompareParameters();
}

INSTANTIATE_TEST_SUITE_P(SplitBackward, OfAModel,
                         ::testing::Values("chain", "two_branches", "four_branches", "skip", "tied",
                                           "shared", "conv", "transformer", "frozen", "dropout"),
                         [](const auto& param_info) { return param_info.param; });

// Parameters by every way: transposed, normalised, tied (directly and through a chain), added to an
// activation, given to other stages, and in the loss; a value received that is passed on.
TEST(SplitBackward, FollowsParametersByEveryWay) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 4});
  const int w = make.AddParameter("w", {4, 4});
  const int scale = make.AddParameter("scale", {4});
  const int frozen = make.AddParameter("frozen", {4, 4}, false);
  const auto full = Meta({-1, 4}), square = Meta({4, 4});
  // `before` and `other` are in another stage.
  const int before = make.AddNode("aten.tanh.default", {In(x)}, {full});
  const int other = make.AddLinear("other", Value(before), 4, 4);
  const int turned = make.AddNode("aten.t.default", {Param(w)}, {square});
  const int norm = make.AddNode("aten.mul.Tensor", {Value(turned), Param(scale)}, {square});
  const int a = make.AddNode("aten.mm.default", {Value(other), Value(norm)}, {full});
  const int b = make.AddNode("aten.mm.default", {Value(a), Param(w)}, {full});
  const int c = make.AddNode("aten.linear.default", {Value(b), Param(frozen)}, {full});
  const int d = make.AddNode("aten.add.Tensor", {Value(c), Param(scale)}, {full});
  const int e = make.AddNode("aten.mm.default", {Value(d), Value(turned)}, {full});
  const int f = make.AddNode("aten.add.Tensor", {Value(e), Value(other)}, {full});
  const int g = make.AddNode("aten.mul.Tensor", {Value(f), Value(a)}, {full});
  const int squares = make.AddNode("aten.mul.Tensor", {Value(norm), Value(norm)}, {square});
  const int sum = make.AddNode("aten.sum.default", {Value(g)}, {Meta({})});
  const int decay = make.AddNode("aten.sum.default", {Value(squares)}, {Meta({})});
  const int loss = make.AddNode("aten.add.Tensor", {Value(sum), Value(decay)}, {Meta({})});
  const auto graph = std::make_shared<const Graph>(make.Finish(loss, -1, LossReduction::kSum));
  const std::string weights = WriteWeights(*graph, "ways.safetensors");
  ProgramStage stage = WholeGraph(*graph);
  std::erase_if(stage.nodes, [&](NodeId id) { return id.value() <= other; });
  const std::vector<ValueRef> outputs = {{NodeId(turned), 0}, {NodeId(c), 0}, {NodeId(f), 0}};
  Runs runs(graph, stage, outputs, weights, 5);
  ASSERT_THAT(runs.whole().received(), ElementsAre(ValueRef{NodeId(other), 0}));
  for (const SampleRange range : {SampleRange{0, 2}, SampleRange{2, 5}}) {
    runs.Run(range, {{Random({range.size(), 4}, 3)}, {}},
             {Random({4, 4}, 4), Random({range.size(), 4}, 5), at::Tensor()});
  }
  runs.CompareParameters();
}

TEST(SplitBackward, HalvesInTheWrongOrderAreRefused) {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, 4});
  const int out = make.AddLinear("layer", In(x), 4, 4);
  const int loss = make.AddNode("aten.mean.default", {Value(out)}, {Meta({})});
  const auto graph = std::make_shared<const Graph>(make.Finish(loss));
  Runs runs(graph, WholeGraph(*graph), {}, WriteWeights(*graph, "order.safetensors"), 4);
  const StageModule::Tensors tensors{{}, {Random({4, 4}, 1)}};
  ASSERT_TRUE(runs.halves().Forward({0, {0, 4}}, tensors, Keep::kGraph).ok());
  ASSERT_TRUE(runs.whole().Forward({0, {0, 4}}, tensors, Keep::kGraph).ok());
  EXPECT_EQ(runs.halves().BackwardWeight({0, {0, 4}}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(runs.whole().BackwardInput({0, {0, 4}}, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(runs.halves().BackwardInput({0, {0, 4}}, {}).ok());
  EXPECT_EQ(runs.halves().BackwardInput({0, {0, 4}}, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(runs.halves().BackwardWeight({0, {0, 4}}).ok());
}

// Between the halves: the inputs of parameter nodes and the gradients of their outputs.
TEST(SplitBackward, TheInputHalfFreesWhatOnlyItNeeded) {
  constexpr int64_t kSamples = 32, kWidth = 64;
  GraphMaker make;
  const int x = make.AddInput("x", {-1, kWidth});
  const TensorMeta meta = Meta({-1, kWidth});
  int value = make.AddLinear("first", In(x), kWidth, kWidth);
  for (const char* target : {"aten.tanh.default", "aten.sigmoid.default", "aten.exp.default",
                             "aten.tanh.default", "aten.sin.default"})
    value = make.AddNode(target, {Value(value)}, {meta});
  value = make.AddLinear("second", Value(value), kWidth, kWidth);
  for (const char* target : {"aten.sigmoid.default", "aten.cos.default", "aten.tanh.default"})
    value = make.AddNode(target, {Value(value)}, {meta});
  const int loss = make.AddNode("aten.sum.default", {Value(value)}, {Meta({})});
  const auto graph = std::make_shared<const Graph>(make.Finish(loss, -1, LossReduction::kSum));
  Runs runs(graph, WholeGraph(*graph), {}, WriteWeights(*graph, "memory.safetensors"), kSamples);
  const StageModule::Tensors tensors{{}, {Random({kSamples, kWidth}, 1)}};
  const int64_t unit = kSamples * kWidth * 8;
  const auto meter = std::make_shared<Meter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
  {
    ASSERT_TRUE(runs.halves().Forward({0, {0, kSamples}}, tensors, Keep::kGraph).ok());
    // tanh, sigmoid and exp keep their results, sine and cosine their input, which is one of those,
    // and the second layer the sine: seven tensors, x apart.
    EXPECT_NEAR(meter->bytes, 7 * unit, 0.1 * unit);
    ASSERT_TRUE(runs.halves().BackwardInput({0, {0, kSamples}}, {}).ok());
    EXPECT_NEAR(meter->bytes, 3 * unit, 0.1 * unit);
    ASSERT_TRUE(runs.halves().BackwardWeight({0, {0, kSamples}}).ok());
    // The parameters' gradients are left.
    EXPECT_NEAR(meter->bytes, 2 * (kWidth + 1) * kWidth * 8, 0.1 * unit);
  }
}

}  // namespace
}  // namespace stagewright::testing
