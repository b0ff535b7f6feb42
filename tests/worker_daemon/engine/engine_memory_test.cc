// The memory that training takes is what the program says: never more, and little less.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/cost/cost_model.h"
#include "common/schedule/lower.h"
#include "common/schedule/policies.h"
#include "common/schedule/trace.h"
#include "common/schedule/validate.h"
#include "common/strategy/stage_edges.h"
#include "planner_service/simulator/simulator.h"
#include "tests/worker_daemon/engine/local_training.h"
#include "tests/worker_daemon/engine/pair_transport.h"
#include "tests/worker_daemon/engine/test_graphs.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT

constexpr int64_t kMiniBatch = 256;
constexpr int64_t kMicroBatch = 64;
constexpr int64_t kWidth = 256;
constexpr int64_t kTokens = 16;

// Linear layers with activations that keep what they give.
Graph Chain() {
  GraphMaker make;
  Argument value = In(make.AddInput("x", {-1, kWidth}));
  const int target = make.AddInput("target", {-1, kWidth});
  for (int layer = 0; layer < 8; ++layer) {
    const int linear = make.AddLinear(absl::StrCat("l", layer), value, kWidth, 2 * kWidth);
    const int tanh = make.AddNode("aten.tanh.default", {Value(linear)}, {Meta({-1, 2 * kWidth})});
    value = Value(make.AddLinear(absl::StrCat("m", layer), Value(tanh), 2 * kWidth, kWidth));
  }
  const int out = std::get<ValueRef>(value.value).node.value();
  const int loss = make.AddNode("aten.mse_loss.default", {Value(out), In(target)}, {Meta({})});
  return make.Finish(loss, out);
}

// Two towers that meet, with relu, a sum and a concatenation.
Graph Branches() {
  GraphMaker make;
  const int x = make.AddInput("x", {-1, kWidth});
  const int target = make.AddInput("target", {-1, kWidth});
  int ends[2];
  for (int branch = 0; branch < 2; ++branch) {
    Argument value = In(x);
    for (int layer = 0; layer < 4; ++layer) {
      const int linear =
          make.AddLinear(absl::StrCat("b", branch, ".", layer), value, kWidth, kWidth);
      const int relu = make.AddNode("aten.relu.default", {Value(linear)}, {Meta({-1, kWidth})});
      ends[branch] =
          layer == 0 ? relu
                     : make.AddNode("aten.add.Tensor", {value, Value(relu)}, {Meta({-1, kWidth})});
      value = Value(ends[branch]);
    }
  }
  const int cat = make.AddNode("aten.cat.default", {List({Value(ends[0]), Value(ends[1])}), Int(1)},
                               {Meta({-1, 2 * kWidth})});
  const int out = make.AddLinear("head", Value(cat), 2 * kWidth, kWidth);
  const int loss = make.AddNode("aten.mse_loss.default", {Value(out), In(target)}, {Meta({})});
  return make.Finish(loss, out);
}

// Blocks of a Transformer: layer norm, attention, gelu, residual sums, cross-entropy.
Graph Transformer() {
  constexpr int64_t kModel = 64, kClasses = 50;
  GraphMaker make;
  const int tokens = make.AddInput("tokens", {-1, kTokens}, DType::kInt64);
  const int target = make.AddInput("target", {-kTokens}, DType::kInt64);
  const auto meta = [](int64_t width) { return Meta({-1, kTokens, width}); };
  const int table = make.AddParameter("embedding", {kClasses, kModel});
  int x = make.AddNode("aten.embedding.default", {Param(table), In(tokens)}, {meta(kModel)});
  const auto norm = [&](const std::string& name, int value) {
    const int weight = make.AddParameter(name + ".weight", {kModel});
    const int bias = make.AddParameter(name + ".bias", {kModel});
    return make.AddNode("aten.layer_norm.default",
                        {Value(value), List({Int(kModel)}), Param(weight), Param(bias)},
                        {meta(kModel)});
  };
  const auto linear = [&](const std::string& name, int value, int64_t in, int64_t out) {
    const int weight = make.AddParameter(name + ".weight", {out, in});
    const int bias = make.AddParameter(name + ".bias", {out});
    return make.AddNode("aten.linear.default", {Value(value), Param(weight), Param(bias)},
                        {meta(out)});
  };
  const auto add = [&](int a, int b) {
    return make.AddNode("aten.add.Tensor", {Value(a), Value(b)}, {meta(kModel)});
  };
  for (int layer = 0; layer < 4; ++layer) {
    const std::string name = absl::StrCat("h", layer);
    const int first = norm(name + ".ln1", x);
    int heads[3];
    for (int i = 0; i < 3; ++i) {
      const int part = linear(absl::StrCat(name, ".qkv", i), first, kModel, kModel);
      const int split = make.AddNode("aten.view.default",
                                     {Value(part), List({Batch(), Int(kTokens), Int(4), Int(16)})},
                                     {Meta({-1, kTokens, 4, 16})});
      heads[i] = make.AddNode("aten.transpose.int", {Value(split), Int(1), Int(2)},
                              {Meta({-1, 4, kTokens, 16})});
    }
    const int attended = make.AddNode("aten.scaled_dot_product_attention.default",
                                      {Value(heads[0]), Value(heads[1]), Value(heads[2])},
                                      {Meta({-1, 4, kTokens, 16})});
    const int back = make.AddNode("aten.transpose.int", {Value(attended), Int(1), Int(2)},
                                  {Meta({-1, kTokens, 4, 16})});
    const int merged =
        make.AddNode("aten.reshape.default",
                     {Value(back), List({Batch(), Int(kTokens), Int(kModel)})}, {meta(kModel)});
    x = add(x, linear(name + ".proj", merged, kModel, kModel));
    const int wide = linear(name + ".up", norm(name + ".ln2", x), kModel, 4 * kModel);
    const int gelu = make.AddNode("aten.gelu.default", {Value(wide)}, {meta(4 * kModel)});
    x = add(x, linear(name + ".down", gelu, 4 * kModel, kModel));
  }
  const int logits = linear("head", norm("ln", x), kModel, kClasses);
  const int flat =
      make.AddNode("aten.view.default", {Value(logits), List({Batch(kTokens), Int(kClasses)})},
                   {Meta({-kTokens, kClasses})});
  const int loss =
      make.AddNode("aten.cross_entropy_loss.default", {Value(flat), In(target)}, {Meta({})});
  return make.Finish(loss, flat);
}

struct Case {
  std::string model, schedule;
  OptimizerKind optimizer = OptimizerKind::kSgd;
  double momentum = 0;
  int stages = 4;
  int replicas = 1;
  bool recompute = false;

  std::string Name() const {
    const std::string kind = optimizer == OptimizerKind::kAdam ? "Adam"
                             : momentum > 0                    ? "Momentum"
                                                               : "Sgd";
    return absl::StrCat(model, "_", schedule, "_", kind, "_Stages", stages, "_Replicas", replicas,
                        recompute ? "_Recompute" : "");
  }
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.Name(); }

// How far below the prediction a device may stay. The prediction adds what a device saves in full
// to the largest need of one operator; where layers are few, and between the halves of a split
// backward pass, some of what was saved is gone by the time of that need (docs/benchmarks.md, "Peak
// memory").
double LeastRatio(const Case& c) {
  if (c.schedule == "ZbH1" || c.schedule == "ZbV" || c.schedule == "BreadthFirst") return 0.75;
  return c.model == "Chain" ? 0.9 : 0.85;
}

// How far above it may go: stages that recompute hold little but messages, whose buffers are kept
// for the next ones.
double MostRatio(const Case& c) { return c.recompute ? 1.1 : 1; }

std::shared_ptr<const Graph> GraphOf(const std::string& model) {
  if (model == "Chain") return std::make_shared<const Graph>(Chain());
  if (model == "Branches") return std::make_shared<const Graph>(Branches());
  return std::make_shared<const Graph>(Transformer());
}

std::string DataOf(const Graph& graph, const std::string& model) {
  const std::string path = TempPath(absl::StrCat("memory_", model, "_data.safetensors"));
  if (model == "Transformer") {
    const auto classes = [](std::vector<int64_t> shape) {
      return Random(std::move(shape), 3).abs().mul(10).to(at::kLong).clamp(0, 49);
    };
    WriteTensors(path, {{"tokens", classes({2 * kMiniBatch, kTokens})},
                        {"target", classes({2 * kMiniBatch * kTokens})}});
  } else {
    WriteTensors(path, {{"x", Random({2 * kMiniBatch, kWidth}, 1)},
                        {"target", Random({2 * kMiniBatch, kWidth}, 2)}});
  }
  return path;
}

bool HasOrders(const std::string& schedule) {
  return schedule == "Looped" || schedule == "BreadthFirst" || schedule == "ZbH1" ||
         schedule == "ZbV";
}

// Where stages end, in the order of the nodes: between layers.
std::vector<int32_t> EndsOf(const Case& c, int32_t nodes) {
  std::vector<int32_t> ends = {6, 12, 18};  // Chain: two layers of three nodes.
  if (c.model == "Branches") ends = {5, 11, 16};
  if (c.model == "Transformer") ends = {21, 41, 61};
  if (c.stages == 2) ends = {ends[1]};
  if (c.stages == 1) ends.clear();
  ends.push_back(nodes);
  return ends;
}

Strategy StrategyOf(const Case& c, const Graph& graph) {
  Strategy strategy;
  strategy.mini_batch = kMiniBatch;
  int32_t begin = 0;
  for (int32_t end : EndsOf(c, graph.size())) {
    Stage& stage = strategy.stages.emplace_back();
    stage.micro_batch = kMicroBatch;
    for (; begin < end; ++begin) stage.nodes.emplace_back(begin);
  }
  strategy.edges = StageEdges(graph, strategy.kind, strategy.stages);
  const auto stages = static_cast<int>(strategy.stages.size());
  for (int s = 0; s < stages; ++s) {
    Stage& stage = strategy.stages[static_cast<size_t>(s)];
    stage.recompute = c.recompute;
    stage.devices.clear();
    int group = s;
    if (c.schedule == "Looped" || c.schedule == "BreadthFirst") group = s % ((stages + 1) / 2);
    if (c.schedule == "ZbV") group = std::min(s, stages - 1 - s);
    for (int r = 0; r < c.replicas; ++r) stage.devices.emplace_back(group * c.replicas + r);
  }
  AssignInFlight(strategy);
  if (c.schedule == "GPipe") {
    for (Stage& stage : strategy.stages) stage.schedule.in_flight = kMiniBatch;
  }
  if (HasOrders(c.schedule)) {
    auto orders = c.schedule == "Looped"
                      ? LoopedOrders(graph, strategy, {.loop_batch = 2, .prefetch = {}})
                  : c.schedule == "BreadthFirst" ? BreadthFirstOrders(graph, strategy)
                  : c.schedule == "ZbH1"         ? ZeroBubbleH1Orders(graph, strategy)
                                                 : ZeroBubbleVOrders(graph, strategy);
    EXPECT_TRUE(orders.ok()) << orders.status();
    SetOrders(graph, *std::move(orders), strategy);
  }
  return strategy;
}

// The loss, its gradient and the like, which no plan counts.
constexpr double kScalars = 1024;

// By device, with the order of events that the clock made in this run: slow transfers hold memory.
std::map<DeviceId, Bytes> PredictedPeaks(const Program& program,
                                         const std::vector<TraceEvent>& trace, int32_t steps) {
  std::map<DeviceId, Bytes> peaks;
  for (const DeviceProgram& device : program.devices) peaks[device.device] = PeakMemory(device);
  for (int32_t step = 0; step < steps; ++step) {
    const auto durations = MakeMeasuredDurations(program, trace, step);
    EXPECT_TRUE(durations.ok()) << durations.status();
    if (!durations.ok()) continue;
    const auto simulation = Simulate(program, **durations, {});
    EXPECT_TRUE(simulation.ok()) << simulation.status();
    if (!simulation.ok()) continue;
    for (const DeviceUse& use : simulation->devices)
      peaks[use.device] = std::max(peaks[use.device], use.peak_memory);
  }
  return peaks;
}

class Memory : public ::testing::TestWithParam<Case> {};

TEST_P(Memory, IsWhatTheProgramSays) {
  at::set_num_threads(1);
  const Case& c = GetParam();
  const auto graph = GraphOf(c.model);
  const Strategy strategy = StrategyOf(c, *graph);
  const auto costs = MakeAnalyticCostModel(*graph);
  LowerOptions options;
  options.optimizer = c.optimizer == OptimizerKind::kAdam ? Optimizer::kAdam
                      : c.momentum > 0                    ? Optimizer::kSgdMomentum
                                                          : Optimizer::kSgd;
  auto program = Lower(*graph, strategy, *costs, options);
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(Validate(*program, {}), absl::OkStatus());
  JobSpec spec;
  spec.graph = graph;
  spec.program = std::make_shared<const Program>(*std::move(program));
  spec.weights_path = WriteWeights(*graph, absl::StrCat("memory_", c.model, ".safetensors"));
  spec.data_path = DataOf(*graph, c.model);
  spec.optimizer.kind = c.optimizer;
  spec.optimizer.momentum = c.momentum;
  spec.optimizer.learning_rate = 1e-3;
  spec.steps = 3;
  std::map<DeviceId, Bytes> peaks;
  for (const DeviceProgram& device : spec.program->devices) peaks[device.device] = 0;
  const auto result = TrainLocally(
      spec,
      [&](JobSpec& own) {
        Bytes& peak = peaks[own.device];
        own.on_step = [&peak, report = own.on_step](StepReport step) {
          peak = step.peak_memory;
          report(std::move(step));
        };
      },
      [](const TransportIdentity& identity) {
        // Copies: of what is handed over by reference, only its maker holds memory.
        return PairTransport::Create(identity, MakeLocalTransport, MakeLocalTransport);
      });
  ASSERT_TRUE(result.ok()) << result.status();
  for (const auto& [device, predicted] :
       PredictedPeaks(*spec.program, result->trace, static_cast<int32_t>(spec.steps))) {
    const Bytes measured = peaks[device];
    const double ratio = static_cast<double>(measured) / static_cast<double>(predicted);
    if (getenv("STAGEWRIGHT_PRINT_MEMORY") != nullptr) {
      std::cout << c.Name() << " device " << device.value() << ": " << ratio << " = " << measured
                << " / " << predicted << "\n";
    }
    EXPECT_LE(measured, MostRatio(c) * static_cast<double>(predicted) + kScalars)
        << "device " << device.value();
    EXPECT_GE(ratio, LeastRatio(c)) << "device " << device.value();
  }
}

TEST(MemoryLimit, EndsTheJobWithTheFigures) {
  at::set_num_threads(1);
  const Case c{"Chain", "GPipe", OptimizerKind::kSgd, 0, 1};
  const auto graph = GraphOf(c.model);
  auto program = Lower(*graph, StrategyOf(c, *graph), *MakeAnalyticCostModel(*graph),
                       {.optimizer = Optimizer::kSgd});
  ASSERT_TRUE(program.ok()) << program.status();
  JobSpec spec;
  spec.graph = graph;
  spec.program = std::make_shared<const Program>(*std::move(program));
  spec.weights_path = WriteWeights(*graph, "memory_limit.safetensors");
  spec.data_path = DataOf(*graph, c.model);
  const DeviceProgram& device = spec.program->devices[0];
  spec.memory_budget = PeakMemory(device);
  spec.memory_limit = device.resident * 2 / 3;
  const auto result = TrainLocally(spec);
  ASSERT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted) << result.status();
  const std::string message(result.status().message());
  for (const std::string& part :
       {std::string("device 0, step 0, "), std::string("stage 0: out of memory: "),
        std::string(" bytes asked for, "), std::string(" bytes in use and at most "),
        absl::StrCat("predicted peak is ", PeakMemory(device), " bytes"),
        absl::StrCat("budget ", spec.memory_budget, " bytes"),
        absl::StrCat("limit of ", spec.memory_limit, " bytes")}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string model : {"Chain", "Branches", "Transformer"}) {
    cases.push_back({model, "GPipe", OptimizerKind::kSgd, 0, 1});
    cases.push_back({model, "OneFOneB", OptimizerKind::kAdam, 0, 1});
    for (const std::string schedule :
         {"GPipe", "OneFOneB", "Looped", "BreadthFirst", "ZbH1", "ZbV"}) {
      cases.push_back({model, schedule, OptimizerKind::kSgd});
      cases.push_back({model, schedule, OptimizerKind::kAdam});
    }
    cases.push_back({model, "OneFOneB", OptimizerKind::kSgd, 0.9});
    cases.push_back({model, "OneFOneB", OptimizerKind::kAdam, 0, 4, 1, true});
    cases.push_back({model, "GPipe", OptimizerKind::kSgd, 0, 4, 1, true});
    cases.push_back({model, "OneFOneB", OptimizerKind::kAdam, 0, 2, 2});
    cases.push_back({model, "GPipe", OptimizerKind::kSgd, 0, 2, 2});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, Memory, ::testing::ValuesIn(Cases()),
                         [](const auto& param_info) { return param_info.param.Name(); });

}  // namespace
}  // namespace stagewright
