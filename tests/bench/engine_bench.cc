// What the engine itself costs per action: a chain of stages that each run one tiny operator, all
// of them on one device, and a device per stage, all devices in this process, 1F1B. Prints
// microseconds per compute action and per action (transfers included); between devices for tensors
// by reference, for packed messages and, with --nccl, for what goes from GPU to GPU.
//
// Then the fixed costs of a program, as the cost model has them (DeviceKind): of a call of a small
// operator, of a pass, of a message at either end and of a step, from differences between the steps
// of one stage with few and many operators, with one and many micro-batches, and of two stages.
//
//   engine_bench [--stages 2] [--micro-batches 512] [--steps 8] [--width 4]
//                [--torch-device cuda:0] [--nccl]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/strategy/in_flight.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/plans/forced_strategies.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/tested_accelerator.h"
#include "tests/worker_daemon/support/transports/pair_transport.h"
#include "tests/worker_daemon/support/transports/transport_factory.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/transport/local/local_transport.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT: the builders read like the graph.

struct Shape {
  int stages = 2, operators = 1;  // `operators` in each stage.
  int64_t micro_batches = 512, steps = 8, width = 4;
  std::string torch_device = "cpu";
};

template <typename T>
T Checked(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "engine_bench: %s\n", result.status().ToString().c_str());
  std::exit(1);
}

// Few operators per stage; the first has a parameter, so that gradients flow through all of them.
std::shared_ptr<const Graph> MakeChain(const Shape& shape) {
  GraphMaker make;
  const TensorMeta whole = Meta({-1, shape.width});
  const int x = make.AddInput("x", {-1, shape.width});
  const int scale = make.AddParameter("scale", {shape.width});
  int last = make.AddNode("aten.mul.Tensor", {In(x), Param(scale)}, {whole});
  for (int i = 1; i < shape.stages * shape.operators; ++i)
    last = make.AddNode("aten.neg.default", {Value(last)}, {whole});
  const int loss = make.AddNode("aten.mean.default", {Value(last)}, {Meta({})});
  return std::make_shared<const Graph>(make.Finish(loss));
}

Strategy MakeChainStrategy(const Shape& shape, bool one_device) {
  Strategy strategy;
  strategy.kind = StrategyKind::kGraph;
  strategy.mini_batch = shape.micro_batches;
  for (int s = 0; s < shape.stages; ++s) {
    Stage stage;
    for (int i = 0; i < shape.operators; ++i) stage.nodes.emplace_back(s * shape.operators + i);
    // The last stage has the loss.
    if (s + 1 == shape.stages) stage.nodes.emplace_back(shape.stages * shape.operators);
    stage.devices.emplace_back(one_device ? 0 : s);
    stage.micro_batch = 1;
    strategy.stages.push_back(std::move(stage));
    if (s > 0) strategy.edges.push_back({StageId(s - 1), StageId(s)});
  }
  AssignInFlight(strategy);
  return strategy;
}

using Reports = std::vector<std::vector<StepReport>>;  // By device and step.

// `gpus`: each device of the program is one, going round.
Reports Train(const DeviceJob& spec, const TransportFactory& transports, bool gpus = false) {
  Reports reports(spec.program->devices.size());
  Checked(TrainLocally(
      spec,
      [&](DeviceJob& own) {
        if (gpus) own.torch_device = Checked(TestedAccelerator(own.device.value()));
        auto& mine = reports[static_cast<size_t>(own.device.value())];
        own.on_step = [&mine](StepReport report) { mine.push_back(std::move(report)); };
      },
      transports));
  return reports;
}

// The fastest step of the slowest device, in microseconds: the one least disturbed. The first step
// warms up.
double FastestStep(const Reports& reports) {
  double slowest = 0;
  for (const auto& steps : reports) {
    Nanos least = std::numeric_limits<Nanos>::max();
    for (size_t i = 1; i < steps.size(); ++i)
      least = std::min(least, steps[i].end - steps[i].start);
    slowest = std::max(slowest, static_cast<double>(least) / 1e3);
  }
  return slowest;
}

void Measure(const char* name, const DeviceJob& spec, const TransportFactory& transports,
             bool gpus = false) {
  const Reports reports = Train(spec, transports, gpus);
  // The median step of the device that does most; the first step warms up.
  double best_compute = 0, best_action = 0;
  for (const auto& steps : reports) {
    std::vector<double> micros;
    for (size_t i = 1; i < steps.size(); ++i)
      micros.push_back(static_cast<double>(steps[i].end - steps[i].start) / 1e3);
    std::sort(micros.begin(), micros.end());
    const auto& events = steps.back().events;
    const auto computes = std::count_if(events.begin(), events.end(), [](const TraceEvent& event) {
      return IsCompute(event.action.kind);
    });
    const double median = micros[micros.size() / 2];
    best_compute = std::max(best_compute, median / static_cast<double>(computes));
    best_action = std::max(best_action, median / static_cast<double>(events.size()));
  }
  std::printf("%-14s %8.2f us per compute action, %8.2f us per action\n", name, best_compute,
              best_action);
}

DeviceJob MakeJob(const Shape& shape, bool one_device) {
  DeviceJob spec;
  spec.torch_device = shape.torch_device;
  spec.graph = MakeChain(shape);
  spec.weights_path = WriteWeights(*spec.graph, "engine_bench_weights.safetensors");
  spec.data_path = TempPath("engine_bench_data.safetensors");
  WriteTensors(spec.data_path, {{"x", Random({shape.micro_batches, shape.width}, 1)}});
  spec.steps = shape.steps + 1;
  spec.program = Checked(LowerBoth(*spec.graph, MakeChainStrategy(shape, one_device))).training;
  return spec;
}

void PrintFixedCosts(const Shape& shape) {
  constexpr int kMany = 33;
  const auto packed = [](const TransportIdentity& identity) {
    return PairTransport::Create(identity, MakeLocalTransport, MakeLocalTransport);
  };
  const auto step = [&](int stages, int operators, int64_t micro_batches) {
    Shape own = shape;
    own.stages = stages;
    own.operators = operators;
    own.micro_batches = micro_batches;
    return FastestStep(Train(MakeJob(own, stages == 1), packed));
  };
  const auto passes = static_cast<double>(2 * shape.micro_batches);
  const double few = step(1, 1, shape.micro_batches);
  const double call = (step(1, kMany, shape.micro_batches) - few) / (kMany - 1) / passes;
  // A stage of one operator and the loss: two calls in either direction.
  const double pass = (few - step(1, 1, 1)) / (passes - 2) - 2 * call;
  const double of_step = step(1, 1, 1) - 2 * (pass + 2 * call);
  // Either of two stages exchanges a message for every pass; the first has one call less.
  const double message = (step(2, 1, shape.micro_batches) - few) / passes;
  std::printf(
      "fixed costs: %.2f us a call, %.2f us a pass (%.2f calls), %.2f us a message (%.2f calls), "
      "%.1f us a step (%.1f calls)\n",
      call, pass, pass / call, message, message / call, of_step, of_step / call);
}

int Main(int argc, char** argv) {
  Shape shape;
  bool nccl = false;
  CLI::App app("What the engine costs per action");
  app.add_option("--stages", shape.stages, "Stages, a device each")->check(CLI::Range(2, 64));
  app.add_option("--micro-batches", shape.micro_batches, "Of a step")->check(CLI::PositiveNumber);
  app.add_option("--steps", shape.steps, "Measured, after the first")->check(CLI::PositiveNumber);
  app.add_option("--width", shape.width, "Numbers of a sample, 8 bytes each")
      ->check(CLI::PositiveNumber);
  app.add_option("--torch-device", shape.torch_device, "What all devices are: cpu, cuda:0");
  app.add_flag("--nccl", nccl, "Also each stage on a GPU, which talk through NCCL; at most 4");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  // First of all that CUDA hears: it sets how GPUs are shared.
  TransportFactory over_nccl;
  if (nccl) over_nccl = Checked(TestedMemoryTransports());
  DeviceJob spec = MakeJob(shape, true);
  Measure("one device", spec, MakeLocalTransport);
  spec.program = Checked(LowerBoth(*spec.graph, MakeChainStrategy(shape, false))).training;
  Measure("by reference", spec, MakeLocalTransport);
  // PairTransport offers no way by reference, so both ends of every edge pack messages.
  Measure("messages", spec, [](const TransportIdentity& identity) {
    return PairTransport::Create(identity, MakeLocalTransport, MakeLocalTransport);
  });
  if (nccl) Measure("NCCL", spec, over_nccl, /*gpus=*/true);
  PrintFixedCosts(shape);
  return 0;
}

}  // namespace
}  // namespace stagewright

int main(int argc, char** argv) { return stagewright::Main(argc, argv); }
