// What it gains to sum gradients in buckets while the backward pass runs, predicted and measured:
// a chain of linear layers on two replicas in this process, each on one thread, between which every
// byte takes the time that a network of a given rate would need. With whole optimizer states and
// with shared ones, one sum after the pass against buckets of some sizes, in turns; medians.
//
// Predictions are the simulator's, with the layers' times in the proportions of the cost model,
// scaled to the passes and updates that the run with one sum took.
//
//   overlap_bench [--layers 12] [--width 512] [--samples 256] [--megabytes-per-second 300]
//                 [--steps 9] [--turns 3]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/cost/analytic.h"
#include "common/cost/collectives.h"
#include "common/lowering/lower.h"
#include "planner_service/simulator/model_durations.h"
#include "planner_service/simulator/simulator.h"
#include "tests/support/clusters.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/plans/plans_by_hand.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/transport/local/local_transport.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT: the builders read like the graph.

struct Shape {
  int layers = 12;
  int64_t width = 512, samples = 256, steps = 9, turns = 3;
  double megabytes_per_second = 300;
};

template <typename T>
T Checked(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "overlap_bench: %s\n", result.status().ToString().c_str());
  std::exit(1);
}

// A LocalTransport whose messages leave one after the other, each when a link of that rate would
// have passed it on.
class PacedTransport : public Transport {
 public:
  PacedTransport(std::unique_ptr<Transport> inner, double bytes_per_second)
      : inner_(std::move(inner)), rate_(bytes_per_second), thread_([this] { Loop(); }) {}
  ~PacedTransport() override {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
  }

  int device() const override { return inner_->device(); }
  std::string Address() const override { return inner_->Address(); }
  absl::Status Connect(const std::vector<Peer>& peers, absl::Time deadline) override {
    return inner_->Connect(peers, deadline);
  }
  void Send(int peer, Tag tag, const void* data, size_t bytes, Done done) override {
    absl::MutexLock lock(&mutex_);
    const auto takes = absl::Seconds(static_cast<double>(bytes) / rate_);
    free_ = std::max(free_, absl::Now()) + takes;
    queue_.push_back({free_, [this, peer, tag, data, bytes, done = std::move(done)]() mutable {
                        inner_->Send(peer, tag, data, bytes, std::move(done));
                      }});
  }
  void Receive(int peer, Tag tag, void* data, size_t bytes, Done done) override {
    inner_->Receive(peer, tag, data, bytes, std::move(done));
  }
  void Abort(absl::Status status) override { inner_->Abort(std::move(status)); }

 private:
  struct Message {
    absl::Time leaves;
    std::function<void()> send;
  };

  void Loop() {
    const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !queue_.empty();
    };
    while (true) {
      Message message;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(&due));
        if (queue_.empty()) return;
        message = std::move(queue_.front());
        queue_.pop_front();
      }
      absl::SleepFor(message.leaves - absl::Now());
      message.send();
    }
  }

  const std::unique_ptr<Transport> inner_;
  const double rate_;
  absl::Mutex mutex_;
  absl::Time free_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

Graph MakeChain(const Shape& shape) {
  GraphMaker make;
  Argument value = In(make.AddInput("x", {-1, shape.width}));
  for (int layer = 0; layer < shape.layers; ++layer) {
    const int linear = make.AddLinear("l" + std::to_string(layer), value, shape.width, shape.width);
    value = Value(make.AddNode("aten.tanh.default", {Value(linear)}, {Meta({-1, shape.width})}));
  }
  return make.Finish(make.AddNode("aten.mean.default", {value}, {Meta({})}));
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// Milliseconds of the steps after the first two, and of actions by kind.
struct Measured {
  std::vector<double> steps;
  std::map<ActionKind, std::vector<double>> actions;
};

double Milliseconds(Nanos time) { return static_cast<double>(time) / 1e6; }

void Run(const DeviceJob& spec, double rate, Measured& measured) {
  std::barrier step_end(static_cast<std::ptrdiff_t>(spec.program->devices.size()));
  const TrainingResult result = Checked(TrainLocally(
      spec,
      [&](DeviceJob& own) {
        own.on_step = [&step_end, report = own.on_step](StepReport step) {
          report(std::move(step));
          step_end.arrive_and_wait();
        };
      },
      [rate](const TransportIdentity& identity) -> absl::StatusOr<std::unique_ptr<Transport>> {
        return std::make_unique<PacedTransport>(Checked(LocalTransport::Create(identity)), rate);
      }));
  for (int64_t step = 2; step < spec.steps; ++step) {
    Nanos start = std::numeric_limits<Nanos>::max(), end = 0;
    for (const TraceEvent& event : result.trace) {
      if (event.step != step) continue;
      start = std::min(start, event.start);
      end = std::max(end, event.end);
      measured.actions[event.action.kind].push_back(Milliseconds(event.end - event.start));
    }
    measured.steps.push_back(Milliseconds(end - start));
  }
}

// Times of a cost model, by factors.
class ScaledCosts : public CostModel {
 public:
  ScaledCosts(const CostModel& costs, double forward, double backward)
      : costs_(costs), forward_(forward), backward_(backward) {}
  OperatorTime Time(NodeId node, const DeviceKind& kind, int64_t samples) const override {
    OperatorTime time = costs_.Time(node, kind, samples);
    const auto scaled = [](Nanos of, double by) {
      return Nanos(static_cast<int64_t>(static_cast<double>(of) * by));
    };
    time.forward = scaled(time.forward, forward_);
    time.backward_input = scaled(time.backward_input, backward_);
    time.backward_weight = scaled(time.backward_weight, backward_);
    time.backward = scaled(time.backward, backward_);
    return time;
  }
  Bytes SavedBytes(NodeId node, int64_t samples) const override {
    return costs_.SavedBytes(node, samples);
  }
  Bytes WorkspaceBytes(NodeId node, int64_t samples) const override {
    return costs_.WorkspaceBytes(node, samples);
  }
  std::string Description() const override { return "scaled"; }

 private:
  const CostModel& costs_;
  const double forward_, backward_;
};

// By the cost model, of an action of device 0 like those that are measured.
double PredictedOf(const Program& program, const Durations& durations, ActionKind kind) {
  for (const ProgramAction& item : program.devices[0].body) {
    if (item.action.kind == kind)
      return Milliseconds(durations.Of(program.devices[0].device, item.action));
  }
  return 0;
}

class Comparison {
 public:
  explicit Comparison(const Shape& shape)
      : shape_(shape),
        graph_(std::make_shared<const Graph>(MakeChain(shape))),
        cluster_(FlatCluster(2, 64 * kGiB, 20'000, shape.megabytes_per_second * 1e6)),
        costs_(MakeAnalyticCostModel(*graph_)) {
    for (ParameterId id : ParametersOf(*graph_, NodesOf()))
      bytes_ += graph_->parameter(id).SizeBytes();
    // Both devices send as many bytes as they sum.
    const std::vector<DeviceId> both = {DeviceId(0), DeviceId(1)};
    rate_ = static_cast<double>(bytes_) / ToSeconds(AllReduceTime(cluster_, both, bytes_));
    spec_.graph = graph_;
    spec_.weights_path = WriteWeights(*graph_, "overlap_bench_weights.safetensors");
    spec_.data_path = TempPath("overlap_bench_data.safetensors");
    WriteTensors(spec_.data_path, {{"x", Random({shape.samples, shape.width}, 1)}});
    spec_.training.optimizer.kind = Optimizer::kAdam;
    spec_.steps = shape.steps + 2;
  }

  void Print(OptimizerSharding sharding) {
    std::vector<int64_t> sizes = {bytes_.count(), bytes_.count() / 2, bytes_.count() / 4,
                                  bytes_.count() / 12};
    std::vector<Measured> measured(sizes.size());
    std::vector<Program> programs;
    for (int64_t size : sizes) programs.push_back(ProgramFor(sharding, size));
    for (int64_t turn = 0; turn < shape_.turns; ++turn) {
      for (size_t i = 0; i < sizes.size(); ++i) {
        spec_.program = std::make_shared<const Program>(programs[i]);
        Run(spec_, rate_, measured[i]);
      }
    }
    const Nanos whole = Predict(programs[0], measured[0], programs[0]);
    const double measured_whole = MedianOf(measured[0].steps);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const double predicted = Milliseconds(Predict(programs[i], measured[0], programs[0]));
      const double found = MedianOf(measured[i].steps);
      std::printf("%-8s %3zu sums: %8.1f ms measured, %8.1f ms predicted", NameOf(sharding),
                  programs[i].reductions.size(), found, predicted);
      if (i > 0) {
        const double gain = measured_whole - found;
        const double expected = Milliseconds(whole) - predicted;
        std::printf("; gain %6.1f ms measured, %6.1f ms predicted: %5.1f %%", gain, expected,
                    100 * gain / expected);
      }
      std::printf("\n");
    }
  }

 private:
  static const char* NameOf(OptimizerSharding sharding) {
    return sharding == OptimizerSharding::kNone ? "whole" : "shared";
  }

  std::vector<NodeId> NodesOf() const {
    std::vector<NodeId> nodes;
    for (int32_t v = 0; v < graph_->size(); ++v) nodes.push_back(NodeId(v));
    return nodes;
  }

  Program ProgramFor(OptimizerSharding sharding, int64_t bucket_bytes) const {
    Strategy strategy =
        PlanByHand(*graph_, shape_.samples, {{graph_->size() - 1, shape_.samples, 2}});
    strategy.bucket_bytes = Bytes(bucket_bytes);
    strategy.optimizer_sharding = sharding;
    LowerOptions options;
    options.cluster = &cluster_;
    return Checked(Lower(*graph_, strategy, *costs_, options));
  }

  // The step time of `program`, if passes and updates take what they took in the run of `base`.
  Nanos Predict(const Program& program, const Measured& base, const Program& base_program) const {
    const auto first =
        MakeModelDurations(*graph_, base_program, cluster_, *costs_, Optimizer::kAdam);
    const auto factor = [&](ActionKind kind) {
      return MedianOf(base.actions.at(kind)) / PredictedOf(base_program, *first, kind);
    };
    const ScaledCosts costs(*costs_, factor(ActionKind::kForward), factor(ActionKind::kBackward));
    ClusterData data = cluster_.data();
    data.kinds[0].memory_bytes_per_second /= factor(ActionKind::kOptimizerStep);
    const Cluster cluster = Checked(Cluster::Create(std::move(data)));
    const auto durations = MakeModelDurations(*graph_, program, cluster, costs, Optimizer::kAdam);
    return Checked(Simulate(program, *durations, {})).step_time;
  }

  const Shape shape_;
  const std::shared_ptr<const Graph> graph_;
  const Cluster cluster_;
  const std::unique_ptr<CostModel> costs_;
  Bytes bytes_ = 0;
  double rate_ = 0;
  DeviceJob spec_;
};

int Main(int argc, char** argv) {
  Shape shape;
  CLI::App app("What overlapping sums of gradients gain");
  app.add_option("--layers", shape.layers, "Linear layers")->check(CLI::Range(1, 1000));
  app.add_option("--width", shape.width, "Of a layer")->check(CLI::PositiveNumber);
  app.add_option("--samples", shape.samples, "Of a step")->check(CLI::Range(2, 1 << 20));
  app.add_option("--megabytes-per-second", shape.megabytes_per_second, "Of the network")
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", shape.steps, "Measured in a turn, after two")
      ->check(CLI::PositiveNumber);
  app.add_option("--turns", shape.turns, "Of every program")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  Comparison comparison(shape);
  for (OptimizerSharding sharding : {OptimizerSharding::kNone, OptimizerSharding::kStates})
    comparison.Print(sharding);
  return 0;
}

}  // namespace
}  // namespace stagewright

int main(int argc, char** argv) { return stagewright::Main(argc, argv); }
