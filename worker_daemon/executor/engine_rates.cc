#include "worker_daemon/executor/engine_rates.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/cost/analytic.h"
#include "common/cost/parameters.h"
#include "common/cost/update.h"
#include "common/data/dataset.h"
#include "common/data/mapped_file.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "worker_daemon/device/work_clock.h"
#include "worker_daemon/executor/executor.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

constexpr int kWarmUps = 2;
constexpr int kSteps = 7;
constexpr int kManyOperators = 17;
constexpr int64_t kManyMicroBatches = 32;
constexpr int kUpdates = 15;
constexpr int64_t kParameters = 32;
// The numbers of a parameter in an update that is as long as its bytes have it, and those that a
// pass before it goes over: they leave neither the caches of a core nor the part that it has of
// those that cores share.
constexpr int64_t kLargeNumbers = 1 << 15;
constexpr int64_t kOtherNumbers = 1 << 24;

// How a step's samples are cut.
struct Batch {
  int64_t size = 1;   // Samples of a micro-batch.
  int64_t count = 1;  // Micro-batches.
};
constexpr Batch kReference = {32, 4};

// A chain of operators on rows of `width` numbers, and its mean as the loss.
class ChainMaker {
 public:
  explicit ChainMaker(int64_t width) : width_(width) {
    data_.name = "chain";
    data_.inputs.push_back({"x", Rows(), InputRole::kFeature});
    last_ = {InputId(0)};
  }

  void Add(std::string target, std::vector<Argument> others = {}) {
    std::vector<Argument> arguments = {last_};
    arguments.insert(arguments.end(), others.begin(), others.end());
    last_ = {AddNode(std::move(target), std::move(arguments), Rows())};
  }
  Argument AddParameter(std::vector<int64_t> shape) {
    Parameter parameter;
    parameter.name = absl::StrCat("p", data_.parameters.size());
    parameter.shape = std::move(shape);
    data_.parameters.push_back(std::move(parameter));
    return {ParameterId(static_cast<int64_t>(data_.parameters.size()) - 1)};
  }
  absl::StatusOr<Graph> Finish() {
    data_.loss = AddNode("aten.mean.default", {last_}, TensorMeta{});
    return Graph::Create(std::move(data_));
  }

 private:
  TensorMeta Rows() const {
    TensorMeta meta;
    meta.shape = {SymInt{1, 0}, SymInt{0, width_}};
    return meta;
  }
  ValueRef AddNode(std::string target, std::vector<Argument> arguments, TensorMeta result) {
    Node node;
    node.name = absl::StrCat("n", data_.nodes.size());
    node.target = std::move(target);
    node.args = std::move(arguments);
    node.outputs = {std::move(result)};
    data_.nodes.push_back(std::move(node));
    return {NodeId(static_cast<int64_t>(data_.nodes.size()) - 1), 0};
  }

  const int64_t width_;
  GraphData data_;
  Argument last_;
};

// The first has a parameter, so that gradients flow through all of them.
absl::StatusOr<Graph> SmallOperators(int count) {
  constexpr int64_t kWidth = 8;
  ChainMaker chain(kWidth);
  chain.Add("aten.mul.Tensor", {chain.AddParameter({kWidth})});
  for (int i = 1; i < count; ++i) chain.Add("aten.neg.default");
  return chain.Finish();
}

absl::StatusOr<Graph> ReferenceNetwork() {
  constexpr int64_t kWidth = 256;
  constexpr int kLayers = 4;
  ChainMaker chain(kWidth);
  for (int i = 0; i < kLayers; ++i) {
    const Argument weight = chain.AddParameter({kWidth, kWidth});
    chain.Add("aten.linear.default", {weight, chain.AddParameter({kWidth})});
    chain.Add("aten.gelu.default");
  }
  return chain.Finish();
}

// All in one stage on one device: a forward and a backward pass of each micro-batch, an update.
Program WholeOnOneDevice(const Graph& graph, Batch batch) {
  Program program;
  program.mini_batch = batch.size * batch.count;
  program.training = true;
  ProgramStage stage;
  for (int32_t v = 0; v < graph.size(); ++v) stage.nodes.emplace_back(v);
  stage.devices = {DeviceId(0)};
  stage.micro_batch = batch.size;
  stage.has_backward = true;
  program.stages.push_back(std::move(stage));
  DeviceProgram device;
  device.device = DeviceId(0);
  const auto add = [&](ActionKind kind, SampleRange samples) {
    ProgramAction item;
    item.action.kind = kind;
    item.action.stage = StageId(0);
    item.action.samples = samples;
    if (!device.body.empty()) item.after = {static_cast<int32_t>(device.body.size()) - 1};
    device.body.push_back(std::move(item));
  };
  for (int64_t begin = 0; begin < program.mini_batch; begin += batch.size) {
    add(ActionKind::kForward, {begin, begin + batch.size});
    add(ActionKind::kBackward, {begin, begin + batch.size});
  }
  add(ActionKind::kOptimizerStep, {});
  program.devices.push_back(std::move(device));
  return program;
}

// A file of memory alone with these bytes, gone with the process whatever ends it. It has no path:
// a worker may be confined to paths (regular_file.h).
absl::StatusOr<std::shared_ptr<const MappedFile>> MemoryFile(std::span<const std::byte> bytes) {
  const int file = memfd_create("engine-rates", MFD_CLOEXEC);
  const auto failed = [&] {
    const absl::Status error =
        absl::UnavailableError(absl::StrCat("a file in memory: ", std::strerror(errno)));
    if (file >= 0) close(file);
    return error;
  };
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes.size())) != 0) return failed();
  void* data = mmap(nullptr, bytes.size(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) return failed();
  std::memcpy(data, bytes.data(), bytes.size());
  return std::make_shared<const MappedFile>("engine-rates", file, data, bytes.size());
}

TensorView ViewOf(const std::string& name, const at::Tensor& tensor) {
  return {name,
          DType::kFloat32,
          tensor.sizes().vec(),
          {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()},
          nullptr};
}

absl::StatusOr<ParameterStore> MakeParameters(const Graph& graph, at::Device device) {
  std::vector<ParameterId> ids;
  at::Tensor made;
  TensorView view;
  for (size_t i = 0; i < graph.parameters().size(); ++i) ids.emplace_back(static_cast<int64_t>(i));
  const auto source = [&](const std::string& name) -> const TensorView* {
    for (const Parameter& parameter : graph.parameters()) {
      if (parameter.name != name) continue;
      made = at::full(parameter.shape, 0.01, at::kFloat);
      view = ViewOf(name, made);
    }
    return &view;
  };
  return ParameterStore::Load(graph, ids, source, "made-up parameters", device);
}

// The least of the times that `run` says it took, in ns: the one that other programs disturbed
// least.
template <typename F>
absl::StatusOr<double> LeastTime(int repeats, F&& run) {
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kWarmUps + repeats; ++i) {
    ASSIGN_OR_RETURN(const double time, run(i));
    if (i >= kWarmUps) least = std::min(least, time);
  }
  return least;
}

OptimizerSpec Adam() {
  OptimizerSpec spec;
  spec.kind = Optimizer::kAdam;
  spec.learning_rate = 1e-6;
  return spec;
}

// A step of the graph on the device, ns.
absl::StatusOr<double> TimeStep(const Graph& graph, Batch batch, at::Device device) {
  const Program program = WholeOnOneDevice(graph, batch);
  const int64_t width = graph.input(InputId(0)).meta.shape[1].offset;
  const at::Tensor rows = at::full({program.mini_batch, width}, 0.5, at::kFloat);
  ASSIGN_OR_RETURN(auto file, MemoryFile(ViewOf("x", rows).data));
  const Dataset data = Dataset::OfRows(graph, std::move(file), program.mini_batch);
  ASSIGN_OR_RETURN(ParameterStore parameters, MakeParameters(graph, device));
  ParameterOptimizer optimizer(Adam(), parameters);
  ExecutorOptions options;
  options.device = device;
  ASSIGN_OR_RETURN(const auto executor,
                   Executor::Create(graph, program, DeviceId(0), parameters, data, &optimizer,
                                    /*transport=*/nullptr, options));
  std::vector<int64_t> samples(static_cast<size_t>(program.mini_batch));
  std::iota(samples.begin(), samples.end(), 0);
  return LeastTime(kSteps, [&](int step) -> absl::StatusOr<double> {
    const double start = WorkClock(device);
    RETURN_IF_ERROR(
        executor->RunStep({.step = step, .samples = samples, .valid = program.mini_batch})
            .status());
    return 1e9 * (WorkClock(device) - start);
  });
}

// An update of `count` parameters of so many numbers, ns, by the time that a pass before it has
// filled the caches with other tensors.
absl::StatusOr<double> TimeUpdate(int64_t count, int64_t numbers, at::Device device) {
  ChainMaker chain(numbers);
  for (int64_t i = 0; i < count; ++i) chain.Add("aten.mul.Tensor", {chain.AddParameter({numbers})});
  ASSIGN_OR_RETURN(const Graph graph, chain.Finish());
  ASSIGN_OR_RETURN(ParameterStore parameters, MakeParameters(graph, device));
  ParameterOptimizer optimizer(Adam(), parameters);
  at::Tensor others = at::zeros({kOtherNumbers}, at::device(device).dtype(at::kFloat));
  const auto update = [&](int step) -> absl::StatusOr<double> {
    others.add_(1);
    for (ParameterId id : parameters.ids()) {
      at::Tensor parameter = parameters[id];
      parameter.mutable_grad() = at::ones_like(parameter).detach();
    }
    const double start = WorkClock(device);
    optimizer.Step(parameters.ids(), step);
    return 1e9 * (WorkClock(device) - start);
  };
  return LeastTime(kUpdates, update);
}

// From the ns that all bytes of the large parameters, their gradients and both moments take.
double RateOfUpdate(double nanos) {
  constexpr double kBytes = 2.0 * 4 * sizeof(float) * kParameters * kLargeNumbers;
  return 1e9 * kBytes / std::max(nanos, 1.0);
}

Nanos NotNegative(double nanos) { return Nanos(std::max(nanos, 0.0)); }

// As MakeModelDurations has it for the program of TimeStep.
double PredictedStep(const Graph& graph, const CostModel& costs, const DeviceKind& kind,
                     Batch batch) {
  Nanos pass = 2 * kind.pass_overhead;
  for (int32_t v = 0; v < graph.size(); ++v) {
    const OperatorTime time = costs.Time(NodeId(v), kind, batch.size);
    pass += time.forward + time.backward;
  }
  HeldBytes held;
  for (const Parameter& parameter : graph.parameters())
    held += BytesHeld(parameter, Optimizer::kAdam);
  return static_cast<double>(batch.count * pass +
                             OptimizerStepTime(kind, held.trained, held.updated));
}

// All rates of operators times `share`.
DeviceKind WithRates(DeviceKind kind, double share) {
  for (double* rate :
       {&kind.flops_per_second, &kind.memory_bytes_per_second, &kind.tf32_flops_per_second,
        &kind.bf16_flops_per_second, &kind.fp16_flops_per_second})
    *rate *= share;
  return kind;
}

// By bisection: a step is the slower, the smaller the share is. Operators of a step are not faster
// than those that are repeated: a step that seems to be tells of too large fixed costs.
DeviceKind Fit(const Graph& graph, const DeviceKind& kind, double measured) {
  const auto costs = MakeAnalyticCostModel(graph);
  double least = 0.1, most = 1;
  for (int i = 0; i < 40; ++i) {
    const double share = (least + most) / 2;
    const bool too_fast =
        PredictedStep(graph, *costs, WithRates(kind, share), kReference) < measured;
    (too_fast ? most : least) = share;
  }
  return WithRates(kind, (least + most) / 2);
}

absl::StatusOr<DeviceKind> Measure(DeviceKind kind, at::Device device) {
  ASSIGN_OR_RETURN(const Graph few, SmallOperators(1));
  ASSIGN_OR_RETURN(const Graph many, SmallOperators(kManyOperators));
  const Batch batches = {1, kManyMicroBatches};
  ASSIGN_OR_RETURN(const double few_batches, TimeStep(few, {1, 1}, device));
  ASSIGN_OR_RETURN(const double few_operators, TimeStep(few, batches, device));
  ASSIGN_OR_RETURN(const double many_operators, TimeStep(many, batches, device));
  const double passes = 2.0 * kManyMicroBatches;
  const double call = (many_operators - few_operators) / (kManyOperators - 1) / passes;
  // Two operators in either direction: one and the loss.
  const double pass = (few_operators - few_batches) / (passes - 2) - 2 * call;
  ASSIGN_OR_RETURN(const double tiny, TimeUpdate(kParameters, 1, device));
  const double parameter = tiny / static_cast<double>(kParameters);
  const double step = few_batches - 2 * (pass + 2 * call) - parameter;
  kind.pass_overhead = NotNegative(pass);
  kind.parameter_overhead = NotNegative(parameter);
  kind.step_overhead = NotNegative(step);
  if (device.is_cpu()) {  // An accelerator's memory is as fast for new tensors.
    ASSIGN_OR_RETURN(const double large, TimeUpdate(kParameters, kLargeNumbers, device));
    kind.update_bytes_per_second = RateOfUpdate(large - tiny);
  }
  ASSIGN_OR_RETURN(const Graph reference, ReferenceNetwork());
  ASSIGN_OR_RETURN(const double measured, TimeStep(reference, kReference, device));
  return Fit(reference, kind, measured);
}

}  // namespace

absl::StatusOr<DeviceKind> MeasureEngine(const DeviceKind& kind, const std::string& torch_device) {
  absl::StatusOr<DeviceKind> measured = absl::UnknownError("not measured");
  RETURN_IF_ERROR(Guarded([&] { measured = Measure(kind, at::Device(torch_device)); }));
  return measured;
}

}  // namespace stagewright
