// Asynchronous 1F1B (PipeDream, Narayanan et al. 2019, section 3) as workers run it: a replay on
// one thread computes the weights that the paper's equations give, version by version.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/data/dataset.h"
#include "common/program/grid.h"
#include "common/program/trace.h"
#include "common/program/unroll.h"
#include "common/strategy/check_strategy.h"
#include "common/topology/cluster.h"
#include "common/topology/presets.h"
#include "tests/worker_daemon/support/graph_totals.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/plans/forced_strategies.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/test_models.h"
#include "worker_daemon/data/sampler.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/executor/executor.h"
#include "worker_daemon/stage/parameter_store.h"
#include "worker_daemon/stage/stage_module.h"
#include "worker_daemon/update/optimizer.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiniBatch = 16;

DeviceJob ShuffledJob(const Model& model, const Programs& programs, Optimizer optimizer,
                      int64_t steps) {
  DeviceJob job = JobOf(model, programs.training, optimizer, steps);
  job.training.optimizer.learning_rate = optimizer == Optimizer::kAdam ? 1e-3 : 0.05;
  job.order = SampleOrder::kShuffled;
  return job;
}

// What the equations give. Micro-batch m, counted through the steps from the last flush on, is run
// forward and backward with the weights of stage s after max(0, m - w_s + 1) updates, with vertical
// sync after max(0, m - W + 1), W being the largest of all w_s that have a backward pass. Its
// gradient makes update m + 1 from those after m updates.
class Reference {
 public:
  Reference(const Model& model, const Strategy& strategy, const DeviceJob& spec)
      : model_(model), strategy_(strategy), spec_(spec) {
    std::vector<ParameterId> ids;
    for (size_t i = 0; i < model.graph->parameters().size(); ++i) ids.emplace_back(i);
    for (auto* store : {&used_, &newest_}) {
      auto loaded = ParameterStore::Load(*model.graph, ids, model.weights, at::kCPU);
      EXPECT_TRUE(loaded.ok()) << loaded.status();
      store->emplace(*std::move(loaded));
    }
    in_flight_.assign(ids.size(), 1);
    if (strategy.vertical_sync) {
      int64_t most = 1;
      for (const Stage& stage : strategy.stages) {
        if (HasBackward(*model.graph, stage))
          most = std::max(most, stage.schedule.in_flight / stage.micro_batch);
      }
      in_flight_.assign(ids.size(), most);
      return;
    }
    std::set<ParameterId> seen;
    for (const Stage& stage : strategy.stages) {
      std::set<ParameterId> own;
      for (NodeId node : stage.nodes) {
        for (ParameterId id : model.graph->Parameters(node)) own.insert(id);
      }
      for (ParameterId id : own) {
        in_flight_[id.index()] = stage.schedule.in_flight / stage.micro_batch;
        EXPECT_TRUE(seen.insert(id).second) << "tied: no single version";
      }
    }
  }

  void Run() {
    const int64_t size = strategy_.stages[0].micro_batch;
    auto module = StageModule::Create(*model_.graph, WholeGraph(*model_.graph), {}, *used_,
                                      {.seed = spec_.seed,
                                       .mini_batch = strategy_.mini_batch,
                                       .update_batch = size,
                                       .precision = spec_.training.precision});
    ASSERT_TRUE(module.ok()) << module.status();
    const auto data = ReadTensors(model_.data);
    ASSERT_TRUE(data.ok()) << data.status();
    const int64_t samples = data->begin()->second.size(0);
    auto sampler = Sampler::Create(samples, strategy_.mini_batch, spec_.order, spec_.seed);
    ASSERT_TRUE(sampler.ok()) << sampler.status();
    ParameterOptimizer optimizer(spec_.training.optimizer, *newest_);
    Remember();
    for (int64_t step = 0; step < spec_.steps; ++step) {
      if (spec_.training.evaluation.every > 0 && step % spec_.training.evaluation.every == 0)
        flushed_ = Newest();
      if (flushes.contains(step)) flushed_ = Newest();
      const std::vector<int64_t> batch = sampler->MiniBatch(step);
      losses.push_back(0);
      for (int64_t begin = 0; begin < strategy_.mini_batch; begin += size) {
        SetWeights(Newest());
        const at::Tensor rows = at::tensor(
            std::vector<int64_t>(batch.begin() + begin, batch.begin() + begin + size), at::kLong);
        StageModule::Tensors tensors;
        for (InputId input : (*module)->inputs()) {
          tensors.inputs.push_back(data->at(model_.graph->input(input).name).index_select(0, rows));
        }
        tensors.totals = TotalsOf(
            *model_.graph, *used_,
            [&](InputId id) {
              return data->at(model_.graph->input(id).name).index_select(0, rows);
            },
            size);
        const SampleRange range{begin, begin + size};
        const auto forward = (*module)->Forward({step, range}, tensors, StageModule::Keep::kGraph);
        ASSERT_TRUE(forward.ok()) << forward.status();
        losses.back() += forward->loss.item<double>() * static_cast<double>(size) /
                         static_cast<double>(strategy_.mini_batch);
        ASSERT_TRUE((*module)->Backward({step, range}, {}).ok());
        for (ParameterId id : newest_->ids()) {
          (*newest_)[id].mutable_grad() = (*used_)[id].grad();
          (*used_)[id].mutable_grad() = at::Tensor();
        }
        optimizer.Step(newest_->ids(), 0);
        Remember();
      }
    }
  }

  // The largest relative error of trained parameters.
  double Error(const std::map<std::string, at::Tensor>& found) const {
    double largest = 0;
    for (ParameterId id : newest_->ids()) {
      const auto own = found.find(model_.graph->parameter(id).name);
      if (own == found.end()) return std::numeric_limits<double>::infinity();
      if (!own->second.is_floating_point()) continue;
      const double error = RelativeError(own->second, (*newest_)[id].detach());
      if (!(error <= largest)) largest = error;
    }
    return largest;
  }

  std::set<int64_t> flushes;   // Steps done before each.
  std::vector<double> losses;  // Per step.

 private:
  int64_t Newest() const { return static_cast<int64_t>(versions_.size()) - 1; }

  void Remember() {
    std::vector<at::Tensor>& version = versions_.emplace_back();
    for (ParameterId id : newest_->ids()) version.push_back((*newest_)[id].detach().clone());
  }

  void SetWeights(int64_t micro_batch) {
    const at::NoGradGuard no_grad;
    for (ParameterId id : used_->ids()) {
      const int64_t version = std::max(flushed_, micro_batch - in_flight_[id.index()] + 1);
      at::Tensor tensor = (*used_)[id];
      tensor.copy_(versions_[static_cast<size_t>(version)][id.index()]);
    }
  }

  const Model& model_;
  const Strategy& strategy_;
  const DeviceJob& spec_;
  std::optional<ParameterStore> used_, newest_;
  std::vector<int64_t> in_flight_;  // Micro-batches in flight in the stage of each parameter.
  std::vector<std::vector<at::Tensor>> versions_;
  int64_t flushed_ = 0;  // The newest version at the last flush.
};

// Gives stages more in flight than their successors need, so that lags differ from those of a chain
// in balance; none has less than a successor, which would wait for it for ever.
void Deepen(Strategy& strategy, std::mt19937_64& random) {
  for (size_t s = strategy.stages.size(); s-- > 0;) {
    Stage& stage = strategy.stages[s];
    int64_t& own = stage.schedule.in_flight;
    for (const StageEdge& edge : strategy.edges) {
      if (edge.from.index() == s)
        own = std::max(own, strategy.stages[edge.to.index()].schedule.in_flight);
    }
    own += static_cast<int64_t>(random() % 3) * stage.micro_batch;
    own = std::min(own, strategy.mini_batch);
  }
}

std::vector<StrategyShape> Shapes() {
  std::vector<StrategyShape> shapes;
  for (int stages = 1; stages <= 5; ++stages) {
    for (int64_t micro_batches : {1, 2, 4, 8}) {
      if (micro_batches < 4 && stages % 2 == 0) continue;
      shapes.push_back({.stages = stages, .micro_batches = micro_batches});
      shapes.push_back({.stages = stages,
                        .most_replicas = 2,
                        .micro_batches = micro_batches,
                        .recompute = stages % 2 == 1});
    }
    shapes.push_back({.stages = stages, .micro_batches = 4, .kind = StrategyKind::kSequential});
  }
  return shapes;
}

// A model, with or without vertical sync.
class Asynchronous : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  static void SetUpTestSuite() { at::set_num_threads(1); }
};

TEST_P(Asynchronous, WeightsAreThoseOfPipeDreamsEquations) {
  const auto& [name, vertical_sync] = GetParam();
  const Model model = LoadModel(name + "_f64");
  const auto cluster = ClusterPreset("cpu:32");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  std::mt19937_64 random(11);
  int stale = 0, synced = 0, trial = 0;
  for (const StrategyShape& shape : Shapes()) {
    Strategy strategy = ForceStrategy(*model.graph, shape, random);
    strategy.asynchronous = true;
    strategy.vertical_sync = vertical_sync;
    if (trial % 2 == 1) Deepen(strategy, random);
    ASSERT_EQ(CheckStrategy(*model.graph, *cluster, strategy), absl::OkStatus());
    const auto programs = LowerBoth(*model.graph, strategy);
    ASSERT_TRUE(programs.ok()) << programs.status();
    ASSERT_TRUE(HasSections(*programs->training));
    const Optimizer optimizer = trial % 3 == 2 ? Optimizer::kAdam : Optimizer::kSgdMomentum;
    DeviceJob spec = ShuffledJob(model, *programs, optimizer, /*steps=*/1 + trial++ % 4);
    if (spec.steps % 2 == 0) {  // Evaluations flush the pipeline.
      spec.evaluation = programs->evaluation;
      spec.evaluation_path = model.data;
      spec.training.evaluation.every = spec.steps / 2;
    }
    SCOPED_TRACE(Grid(*programs->training));
    const auto result = TrainLocally(spec);
    ASSERT_TRUE(result.ok()) << result.status();
    Reference reference(model, strategy, spec);
    reference.Run();
    EXPECT_LT(reference.Error(result->parameters), 1e-9);
    ASSERT_EQ(result->losses.size(), reference.losses.size());
    for (size_t i = 0; i < reference.losses.size(); ++i)
      EXPECT_NEAR(result->losses[i], reference.losses[i], 1e-9 * std::abs(reference.losses[i]));
    if (spec.training.evaluation.every == 0) {  // Otherwise the trace is of several runs.
      EXPECT_EQ(CheckTrace(*programs->training, result->trace), absl::OkStatus());
    }
    // Whether stale weights made a difference, and that they are the same in all stages.
    if (vertical_sync && name != "tied") {
      strategy.vertical_sync = false;
      Reference stashed(model, strategy, spec);
      stashed.Run();
      if (stashed.Error(result->parameters) > 1e-6) ++synced;
      strategy.vertical_sync = true;
    }
    for (Stage& stage : strategy.stages) stage.schedule.in_flight = stage.micro_batch;
    Reference fresh(model, strategy, spec);
    fresh.Run();
    if (fresh.Error(result->parameters) > 1e-6) ++stale;
  }
  EXPECT_GT(stale, 10);
  EXPECT_GE(synced, vertical_sync && name != "tied" ? 5 : 0);
}

// The pipeline runs empty after steps that devices hear of as late as they may.
TEST_P(Asynchronous, FlushesAfterStepsThatAreToldOnTheWay) {
  const auto& [name, vertical_sync] = GetParam();
  const Model model = LoadModel(name + "_f64");
  const std::set<int64_t> flushes = {2, 5};
  std::mt19937_64 random(13);
  int different = 0;
  for (const StrategyShape& shape : {StrategyShape{.stages = 3, .micro_batches = 4},
                                     StrategyShape{.stages = 2, .micro_batches = 2},
                                     StrategyShape{.stages = 1, .micro_batches = 1}}) {
    Strategy strategy = ForceStrategy(*model.graph, shape, random);
    strategy.asynchronous = true;
    strategy.vertical_sync = vertical_sync;
    const auto programs = LowerBoth(*model.graph, strategy);
    ASSERT_TRUE(programs.ok()) << programs.status();
    DeviceJob spec = ShuffledJob(model, *programs, Optimizer::kAdam, /*steps=*/8);
    spec.flush_after = [&flushes](int64_t step) {
      const auto next = flushes.upper_bound(step);
      return next != flushes.end() && *next <= step + 2 ? *next
                                                        : std::numeric_limits<int64_t>::max();
    };
    SCOPED_TRACE(Grid(*programs->training));
    const auto result = TrainLocally(spec);
    ASSERT_TRUE(result.ok()) << result.status();
    Reference reference(model, strategy, spec);
    reference.flushes = flushes;
    reference.Run();
    EXPECT_LT(reference.Error(result->parameters), 1e-9);
    ASSERT_EQ(result->losses.size(), reference.losses.size());
    for (size_t i = 0; i < reference.losses.size(); ++i)
      EXPECT_NEAR(result->losses[i], reference.losses[i], 1e-9 * std::abs(reference.losses[i]));
    Reference never(model, strategy, spec);
    never.Run();
    if (never.Error(result->parameters) > 1e-9) ++different;
  }
  EXPECT_GT(different, name == "tied" || name == "frozen" ? -1 : 0);
}

std::string NameOfCase(const ::testing::TestParamInfo<std::tuple<std::string, bool>>& info) {
  return absl::StrCat(std::get<0>(info.param), std::get<1>(info.param) ? "_vertical_sync" : "");
}

using Cases = std::vector<std::tuple<std::string, bool>>;

// Every model, and a simple and a large one in both ways; the other ways are for the long run.
INSTANTIATE_TEST_SUITE_P(Models, Asynchronous,
                         ::testing::ValuesIn(Cases{{"chain", false},
                                                   {"chain", true},
                                                   {"two_branches", false},
                                                   {"four_branches", true},
                                                   {"skip", false},
                                                   {"conv", true},
                                                   {"transformer", false},
                                                   {"transformer", true},
                                                   {"frozen", false},
                                                   {"dropout", true}}),
                         NameOfCase);
INSTANTIATE_TEST_SUITE_P(LongModels, Asynchronous,
                         ::testing::ValuesIn(Cases{{"two_branches", true},
                                                   {"four_branches", false},
                                                   {"skip", true},
                                                   {"conv", false},
                                                   {"frozen", true},
                                                   {"dropout", false}}),
                         NameOfCase);
// Without vertical sync, tied weights have no single version.
INSTANTIATE_TEST_SUITE_P(Tied, Asynchronous,
                         ::testing::Combine(::testing::Values(std::string("tied")),
                                            ::testing::Values(true)),
                         NameOfCase);

// Tied weights have a version per stage; the stages that hold them must agree in the end, and the
// job must not hang.
TEST(AsynchronousJob, TiedWeightsStayEqual) {
  const Model model = LoadModel("tied_f64");
  std::mt19937_64 random(5);
  for (int stages : {2, 3, 4}) {
    Strategy strategy = ForceStrategy(*model.graph, {.stages = stages, .micro_batches = 4}, random);
    strategy.asynchronous = true;
    const auto programs = LowerBoth(*model.graph, strategy);
    ASSERT_TRUE(programs.ok()) << programs.status();
    const auto result = TrainLocally(ShuffledJob(model, *programs, Optimizer::kSgdMomentum, 3));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(std::isfinite(result->losses.back()));
  }
}

// In bfloat16 passes take a cast of the version that they are to use, and messages are half as
// long: to the bit what one thread computes.
TEST(AsynchronousJob, MixedPrecisionFollowsTheSameEquations) {
  std::mt19937_64 random(7);
  for (const char* name : {"chain_f32", "four_branches_f32", "transformer_f32", "dropout_f32"}) {
    const Model model = LoadModel(name);
    for (const bool vertical_sync : {false, true}) {
      Strategy strategy = ForceStrategy(*model.graph, {.stages = 3, .micro_batches = 4}, random);
      strategy.asynchronous = true;
      strategy.vertical_sync = vertical_sync;
      const auto programs = LowerBoth(*model.graph, strategy);
      ASSERT_TRUE(programs.ok()) << programs.status();
      DeviceJob spec = ShuffledJob(model, *programs, Optimizer::kSgdMomentum, /*steps=*/3);
      SCOPED_TRACE(absl::StrCat(name, "\n", Grid(*programs->training)));
      const auto exact = TrainLocally(spec);
      ASSERT_TRUE(exact.ok()) << exact.status();
      spec.training.precision = Precision::kBFloat16;
      const auto result = TrainLocally(spec);
      ASSERT_TRUE(result.ok()) << result.status();
      Reference reference(model, strategy, spec);
      reference.Run();
      EXPECT_EQ(reference.Error(result->parameters), 0);
      EXPECT_GT(reference.Error(exact->parameters), 1e-6);
      ASSERT_EQ(result->losses.size(), reference.losses.size());
      for (size_t i = 0; i < reference.losses.size(); ++i)
        EXPECT_NEAR(result->losses[i], reference.losses[i], 1e-6 * std::abs(reference.losses[i]));
    }
  }
}

// The bytes that this thread allocates and frees.
class Meter : public c10::MemoryReportingInfoBase {
 public:
  bool memoryProfilingEnabled() const override { return true; }
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    bytes_ += size;
    peak = std::max(peak, bytes_);
  }
  int64_t bytes() const { return bytes_; }
  int64_t peak = 0;

 private:
  int64_t bytes_ = 0;
};

// One device, one stage, weights far larger than anything else.
class OneDevice {
 public:
  explicit OneDevice(int64_t in_flight, int32_t version_lag = 0) {
    GraphMaker make;
    const int x = make.AddInput("x", {-1, kWidth});
    const int weight = make.AddParameter("weight", {kWidth, kWidth});
    const int out =
        make.AddNode("aten.linear.default", {In(x), Param(weight)}, {Meta({-1, kWidth})});
    const int loss = make.AddNode("aten.mean.default", {Value(out)}, {Meta({})});
    graph_ = std::make_unique<Graph>(make.Finish(loss));
    Strategy strategy;
    strategy.mini_batch = 8;
    strategy.asynchronous = true;
    Stage& stage = strategy.stages.emplace_back();
    stage.nodes = WholeGraph(*graph_).nodes;
    stage.devices = {DeviceId(0)};
    stage.schedule.in_flight = in_flight;
    auto programs = LowerBoth(*graph_, strategy);
    EXPECT_TRUE(programs.ok()) << programs.status();
    Program program = *programs->training;
    program.stages[0].version_lag = version_lag;  // As if another stage had more in flight.
    program_ = std::make_shared<const Program>(std::move(program));
    const std::string path = WriteWeights(*graph_, "one.safetensors");
    auto store = ParameterStore::Load(*graph_, {ParameterId(0)}, path, at::kCPU);
    EXPECT_TRUE(store.ok()) << store.status();
    store_.emplace(*std::move(store));
    const std::string data = TempPath("one_data.safetensors");
    WriteTensors(data, {{"x", Random({8, kWidth}, 1)}});
    auto dataset = Dataset::Open(*graph_, {InputId(0)}, data);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    data_.emplace(*std::move(dataset));
    OptimizerSpec config;
    config.kind = Optimizer::kSgd;
    config.learning_rate = 0.1;
    optimizer_.emplace(config, *store_);
    auto executor = Executor::Create(*graph_, *program_, DeviceId(0), *store_, *data_, &*optimizer_,
                                     nullptr, {});
    EXPECT_TRUE(executor.ok()) << executor.status();
    executor_ = *std::move(executor);
  }

  absl::StatusOr<StepOutput> RunStep(int64_t step, int64_t left) {
    const std::span<const int64_t> next = left > 0 ? samples_ : std::span<const int64_t>();
    return executor_->RunStep({step, samples_, 8, absl::Now() + absl::Seconds(20), left, next});
  }

  static constexpr int64_t kWidth = 256;
  static constexpr int64_t kWeightBytes = kWidth * kWidth * 8;
  const DeviceProgram& program() const { return program_->devices[0]; }

 private:
  static constexpr int64_t kIndices[] = {0, 1, 2, 3, 4, 5, 6, 7};
  std::span<const int64_t> samples_ = kIndices;
  std::unique_ptr<Graph> graph_;
  std::shared_ptr<const Program> program_;
  std::optional<ParameterStore> store_;
  std::optional<Dataset> data_;
  std::optional<ParameterOptimizer> optimizer_;
  std::unique_ptr<Executor> executor_;
};

TEST(AsynchronousJob, HoldsAsManyVersionsAsTheProgramSays) {
  for (int64_t in_flight : {1, 2, 3, 5}) {
    for (int32_t lag : {0, 1, 3}) {
      const auto meter = std::make_shared<Meter>();
      const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
      OneDevice device(in_flight, lag);
      meter->peak = 0;
      for (int64_t step = 0; step < 3; ++step) ASSERT_TRUE(device.RunStep(step, 2 - step).ok());
      const auto versions = static_cast<double>(in_flight + lag);
      const double weights = static_cast<double>(meter->peak) / OneDevice::kWeightBytes;
      EXPECT_NEAR(weights, versions + 1, 0.15);  // The versions, a gradient.
      // After a flush there is one.
      const double left = static_cast<double>(meter->bytes()) / OneDevice::kWeightBytes;
      EXPECT_LT(left, 2.15);
      if (lag > 0) continue;
      // The program was lowered for Adam, which has two moments. The gradient comes and goes.
      EXPECT_EQ(device.program().resident, (in_flight + 2) * OneDevice::kWeightBytes);
    }
  }
}

TEST(AsynchronousJob, StepsOfARunFollowEachOther) {
  OneDevice device(2);
  ASSERT_TRUE(device.RunStep(7, 2).ok());
  auto bad = device.RunStep(9, 1);
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("step 9: it does not go on"));
  EXPECT_FALSE(device.RunStep(8, 2).ok());
  ASSERT_TRUE(device.RunStep(8, 1).ok());
  const auto last = device.RunStep(9, 0);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->events.back().step, 9);
  // The next run starts anew.
  EXPECT_TRUE(device.RunStep(3, 0).ok());
  // Destroyed in the middle of a run.
  EXPECT_TRUE(device.RunStep(4, 5).ok());
}

}  // namespace
}  // namespace stagewright::testing
