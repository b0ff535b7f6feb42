// Trains a graph from files in one process, without services: the plan is one by hand
// (docs/planners/manual.md), each of its devices is a thread, and all of them are one device of
// LibTorch, between which tensors go by reference; or, with --nccl, each is a GPU, going round, and
// tensors go through NCCL. Samples come in their order, Adam updates.
// Writes JSON: each step's loss and seconds, and the most memory that tensors took.
//
//   job_bench --graph G.swg --weights W.safetensors --data D.safetensors --plan P.json
//             --mini-batch 16 --json OUT.json [--torch-device cuda:0 | --nccl] ...
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/text_file.h"
#include "common/topology/presets.h"
#include "common/training/names.h"
#include "common/training/precision.h"
#include "common/wire/graph_file.h"
#include "planner_service/front_door/front_door.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/tested_accelerator.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/executor/device_runner.h"

namespace stagewright {
namespace {

struct Options {
  std::string graph, weights, data, plan, json;
  std::string torch_device = "cpu", precision = "graph";
  int64_t mini_batch = 1, steps = 20;
  double learning_rate = 1e-4;
  int devices = 1, threads = 1;
  bool nccl = false;
};

// The plan's program, on devices that lack nothing: whether it fits shows when it runs.
absl::StatusOr<std::shared_ptr<const Program>> ReadProgram(const Graph& graph,
                                                           const Options& options) {
  ASSIGN_OR_RETURN(const Cluster cluster, ClusterPreset(absl::StrCat("uniform:", options.devices)));
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.planner = kManualPlanner;
  request.mini_batch = options.mini_batch;
  ASSIGN_OR_RETURN(request.options.manual, ReadTextFile(options.plan));
  SearchContext context;
  ASSIGN_OR_RETURN(const PlanResponse response, SolvePlan(request, context));
  if (!response.best.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(options.plan, ": ", response.reason));
  }
  if (response.best->split_graphs != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(options.plan, ": cuts operators"));
  }
  return std::make_shared<const Program>(response.best->evaluation.program);
}

// What all devices report, added up.
class Measured {
 public:
  explicit Measured(int64_t steps) : steps_(static_cast<size_t>(steps)) {}

  void Add(const StepReport& report) {
    absl::MutexLock lock(&mutex_);
    Step& step = steps_[static_cast<size_t>(report.step)];
    step.loss += report.loss;
    step.start = step.end == 0 ? report.start : std::min(step.start, report.start);
    step.end = std::max(step.end, report.end);
    peak_ = std::max(peak_, report.memory.peak);
  }

  // A step takes from the end of the one before it to its own.
  nlohmann::json ToJson() const {
    absl::MutexLock lock(&mutex_);
    nlohmann::json losses = nlohmann::json::array(), seconds = nlohmann::json::array();
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Nanos start = i == 0 ? steps_[i].start : steps_[i - 1].end;
      losses.push_back(steps_[i].loss);
      seconds.push_back(static_cast<double>(steps_[i].end - start) / 1e9);
    }
    return nlohmann::json{
        {"losses", losses}, {"step_seconds", seconds}, {"peak_bytes", peak_.count()}};
  }

 private:
  struct Step {
    double loss = 0;
    Nanos start = 0, end = 0;
  };
  mutable absl::Mutex mutex_;
  std::vector<Step> steps_;
  Bytes peak_ = 0;
};

absl::Status Run(const Options& options) {
  ASSIGN_OR_RETURN(Graph graph, ReadGraphFile(options.graph));
  DeviceJob job;
  job.graph = std::make_shared<const Graph>(std::move(graph));
  ASSIGN_OR_RETURN(job.program, ReadProgram(*job.graph, options));
  job.torch_device = options.torch_device;
  job.weights_path = options.weights;
  job.data_path = options.data;
  job.order = SampleOrder::kSequential;
  job.steps = options.steps;
  job.step_timeout = absl::Minutes(5);
  job.training.optimizer.kind = Optimizer::kAdam;
  job.training.optimizer.learning_rate = options.learning_rate;
  job.training.precision = *FindIn(kPrecisionNames, options.precision);
  testing::TransportFactory transports = testing::MakeLocalTransport;
  if (options.nccl) {
    ASSIGN_OR_RETURN(transports, testing::TestedMemoryTransports());
  }
  Measured measured(options.steps);
  RETURN_IF_ERROR(testing::RunLocally(
      job,
      [&](DeviceJob& own) {
        own.on_step = [&measured](const StepReport& report) { measured.Add(report); };
        if (options.nccl) own.torch_device = *testing::TestedAccelerator(own.device.value());
      },
      transports));
  std::ofstream out(options.json);
  out << measured.ToJson().dump() << "\n";
  out.close();
  return out ? absl::OkStatus()
             : absl::InternalError(absl::StrCat(options.json, ": cannot be written"));
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a graph in one process, without services");
  app.add_option("--graph", options.graph, "Graph file")->required();
  app.add_option("--weights", options.weights, "Its parameters")->required();
  app.add_option("--data", options.data, "Its samples")->required();
  app.add_option("--plan", options.plan, "Plan by hand")->required();
  app.add_option("--json", options.json, "Where the figures go")->required();
  app.add_option("--mini-batch", options.mini_batch, "Samples of a step")
      ->required()
      ->check(CLI::PositiveNumber);
  app.add_option("--devices", options.devices, "That the plan may name")
      ->check(CLI::PositiveNumber);
  auto* const device =
      app.add_option("--torch-device", options.torch_device, "What all of them are: cpu, cuda:0");
  app.add_flag("--nccl", options.nccl, "Each of them is a GPU, and they talk through NCCL")
      ->excludes(device);
  app.add_option("--precision", options.precision, "In which passes compute")
      ->check(CLI::IsMember(NamesIn(kPrecisionNames)));
  app.add_option("--steps", options.steps, "To train")->check(CLI::PositiveNumber);
  app.add_option("--lr", options.learning_rate, "Of Adam")->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads, "Of an operator on the CPU")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  SetIntraOpThreads(options.threads);
  const absl::Status status = Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "job_bench: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace stagewright

int main(int argc, char** argv) { return stagewright::Main(argc, argv); }
