#include "worker_daemon/profiler/operator_profiler.h"

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/cost/measured/operator_signature.h"
#include "common/graph/index_bounds.h"
#include "worker_daemon/device/memory_meter.h"
#include "worker_daemon/profiler/cache_walk.h"
#include "worker_daemon/profiler/harness_cost.h"
#include "worker_daemon/profiler/operands.h"
#include "worker_daemon/profiler/operator_chain.h"
#include "worker_daemon/profiler/repeats.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

using Clock = std::chrono::steady_clock;
using Part = OperatorChain::Part;

constexpr int kLongestChain = 256;
constexpr double kChainNanos = 1e6;
constexpr int kFewLinks = 5;
constexpr int kWalkLinks = 9;
constexpr Bytes kMostCopied = 64 * kMiB;
constexpr int kWarmUps = 2;
constexpr size_t kLeastRepeats = 3;
constexpr size_t kMostRepeats = 30;
constexpr double kMostNanos = 3e8;
// If the host asks for longer, as a part of a chain's time, the device waits for it.
constexpr double kHostBound = 0.8;

Bytes BytesOf(const Operands& operands, const Graph& graph, NodeId node) {
  Bytes bytes = 0;
  for (const auto& [argument, tensor] : operands) {
    if (NeedsGradient(graph, node, argument)) bytes += Bytes(tensor.nbytes());
  }
  return bytes;
}

// What is known before any operator of a graph runs.
struct KnownBefore {
  std::vector<IndexBounds> bounds;
  std::optional<GraphTypes> types;
  HarnessCost harness;
};

// One operator with one number of samples.
class Measuring {
 public:
  Measuring(const Graph& graph, NodeId node, int64_t samples, const ProfileOptions& options,
            const KnownBefore& known)
      : graph_(graph),
        node_(node),
        options_(options),
        known_(known),
        device_(options.torch_device) {
    measured_.samples = samples;
  }

  absl::StatusOr<OperatorMeasurement> Run() {
    const MemoryMeter meter(options_.torch_device, options_.memory);
    const MemoryMeter::Scope scope(&meter);
    ASSIGN_OR_RETURN(Operands operands, MakeOperands(graph_, node_, measured_.samples,
                                                     known_.bounds, device_, known_.types));
    const Bytes gradients = BytesOf(operands, graph_, node_);
    Surroundings surroundings;
    if (device_.is_cpu()) surroundings = Around(operands);
    ASSIGN_OR_RETURN(
        chain_, OperatorChain::Create(graph_, node_, measured_.samples, std::move(operands),
                                      device_, options_.precision, OperatorChain::Links::kApart,
                                      std::move(surroundings)));
    RETURN_IF_ERROR(MeasureMemory(gradients));
    ASSIGN_OR_RETURN(const int length, ChainLength());
    RETURN_IF_ERROR(MeasureTimes(length));
    chain_.reset();
    return measured_;
  }

 private:
  // Nanoseconds until the device has done what `work` asks of it, and until the host had asked.
  struct Span {
    double done = 0, asked = 0;
  };
  // What a chain of so many links takes.
  template <typename F>
  absl::StatusOr<Span> Timed(int length, F&& work) {
    if (options_.stopped && options_.stopped()) return absl::CancelledError("stopped");
    const auto since = [start = Clock::now()] {
      return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    };
    if (walk_.has_value()) walk_->Begin();
    RETURN_IF_ERROR(work());
    if (walk_.has_value()) return Span{length * walk_->Nanos(), 0};
    const double asked = since();
    RETURN_IF_ERROR(Wait());
    return Span{since(), asked};
  }

  absl::Status Wait() const {
    if (device_.is_cpu()) return absl::OkStatus();
    return Guarded(
        [&] { c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index()); });
  }

  Bytes BytesOfResults() const {
    const std::vector<TensorMeta>& outputs = graph_.node(node_).outputs;
    Bytes bytes = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const DType type = TypeOf(graph_, known_.types, {node_, static_cast<int32_t>(i)});
      bytes += outputs[i].Elements(measured_.samples) * SizeOf(type);
    }
    return bytes;
  }

  // As in a pass of the graph: between two uses of a parameter lies all that the pass goes over.
  Surroundings Around(const Operands& operands) {
    const Bytes pass = BytesOfPass(graph_, known_.types, measured_.samples);
    const Bytes walk = BytesOfWalk();
    walk_.emplace(std::min(pass, walk));
    Bytes each = walk;
    for (const auto& [argument, tensor] : operands) {
      if (std::holds_alternative<ParameterId>(argument.value)) each += 2 * Bytes(tensor.nbytes());
    }
    const Bytes most = std::min(options_.memory / 4, kMostCopied);
    const int64_t copies = std::min(pass, most) / each + 1;
    return {[this] { walk_->Walk(); }, static_cast<int>(std::min(copies, int64_t{kWalkLinks}))};
  }

  // By a chain of one: what it takes forward, and what of that is there when its results are gone.
  absl::Status MeasureMemory(Bytes gradients) {
    // The first run takes what stays for good: casts of weights, workspaces of libraries.
    RETURN_IF_ERROR(chain_->Forward(1));
    RETURN_IF_ERROR(chain_->Backward(Part::kWhole));
    RETURN_IF_ERROR(Wait());
    {
      const MemoryMeter forward(options_.torch_device);
      const MemoryMeter::Scope scope(&forward);
      const Bytes before = forward.now();
      RETURN_IF_ERROR(chain_->Forward(1));
      RETURN_IF_ERROR(Wait());
      const Bytes results = BytesOfResults();
      measured_.kept = std::max(forward.now() - before, Bytes(0));
      measured_.workspace = forward.peak() - before - std::max(results, measured_.kept);
    }
    if (chain_->has_backward()) {
      const MemoryMeter backward(options_.torch_device);
      const MemoryMeter::Scope scope(&backward);
      const Bytes before = backward.now();
      RETURN_IF_ERROR(chain_->Backward(Part::kWhole));
      RETURN_IF_ERROR(Wait());
      measured_.workspace = std::max(measured_.workspace, backward.peak() - before - gradients);
    }
    measured_.workspace = std::max(measured_.workspace, Bytes(0));
    return absl::OkStatus();
  }

  absl::StatusOr<int> ChainLength() {
    const double by_memory =
        static_cast<double>(options_.memory) / 4 /
        static_cast<double>(std::max(measured_.kept + measured_.workspace, Bytes(1)));
    const int most = static_cast<int>(std::clamp(by_memory, 1.0, double{kLongestChain}));
    double nanos = 0;
    for (int i = 0; i < kWarmUps; ++i) {
      ASSIGN_OR_RETURN(nanos, ForwardNanos(1));
    }
    // Most of what one link takes an accelerator is that the host waits for it.
    const int few = std::min(kFewLinks, most);
    if (!device_.is_cpu() && few > 1) {
      for (int i = 0; i < kWarmUps; ++i) {
        ASSIGN_OR_RETURN(const double of_few, ForwardNanos(few));
        if (i + 1 == kWarmUps) nanos = (of_few - nanos) / (few - 1);
      }
    }
    const int in_time =
        static_cast<int>(std::min(1e9, std::ceil(kChainNanos / std::max(nanos, 1.0))));
    if (!walk_.has_value() || in_time == 1) return std::clamp(in_time, 1, most);
    return std::min(kWalkLinks, most);
  }

  absl::StatusOr<double> ForwardNanos(int length) {
    ASSIGN_OR_RETURN(const Span span, Timed(length, [&] { return chain_->Forward(length); }));
    RETURN_IF_ERROR(chain_->Backward(Part::kWhole));
    return span.done;
  }

  // What chains, or links of them, took.
  struct Times {
    std::vector<double> forward, backward, both, input, weight;  // In nanoseconds.
    // How much of them the host took to ask for it.
    std::vector<double> forward_asked, backward_asked;
  };

  absl::Status RepeatOnce(int length, Times& times) {
    ASSIGN_OR_RETURN(const Span forward, Timed(length, [&] { return chain_->Forward(length); }));
    ASSIGN_OR_RETURN(const Span backward,
                     Timed(length, [&] { return chain_->Backward(Part::kWhole); }));
    times.forward.push_back(forward.done);
    times.backward.push_back(backward.done);
    times.both.push_back(forward.done + backward.done);
    times.forward_asked.push_back(forward.asked / forward.done);
    times.backward_asked.push_back(backward.asked / backward.done);
    if (!chain_->splits()) return absl::OkStatus();
    RETURN_IF_ERROR(chain_->Forward(length));
    RETURN_IF_ERROR(Wait());
    ASSIGN_OR_RETURN(const Span input,
                     Timed(length, [&] { return chain_->Backward(Part::kInput); }));
    ASSIGN_OR_RETURN(const Span weight,
                     Timed(length, [&] { return chain_->Backward(Part::kWeight); }));
    times.input.push_back(input.done);
    times.weight.push_back(weight.done);
    return absl::OkStatus();
  }

  absl::StatusOr<Times> Repeated(int length) {
    for (int i = 0; i < kWarmUps; ++i) {
      Times unused;
      RETURN_IF_ERROR(RepeatOnce(length, unused));
    }
    Times times;
    const auto start = Clock::now();
    while (times.both.size() < kMostRepeats && !IsSettled(times.both)) {
      const double taken = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
      if (times.both.size() >= kLeastRepeats && taken > kMostNanos) break;
      RETURN_IF_ERROR(RepeatOnce(length, times));
    }
    return times;
  }

  absl::Status MeasureTimes(int length) {
    // What a chain takes an accelerator however long it is: the first launch, waking the thread of
    // LibTorch's backward passes, waiting for the device.
    Times alone;
    if (!device_.is_cpu() && length > 1) {
      ASSIGN_OR_RETURN(alone, Repeated(1));
    }
    ASSIGN_OR_RETURN(const Times times, Repeated(length));
    const auto link = [&](const std::vector<double>& chain, const std::vector<double>& one) {
      if (chain.empty()) return 0.0;
      if (one.empty()) return RobustMedian(chain) / length;
      return std::max(0.0, (RobustMedian(chain) - RobustMedian(one)) / (length - 1));
    };
    // Kernels that outlast their launches hide what the harness adds to those.
    const auto harness = [&](double cost, const std::vector<double>& asked) {
      return device_.is_cpu() || RobustMedian(asked) > kHostBound ? cost : 0.0;
    };
    const bool backward = chain_->has_backward();
    measured_.forward =
        Rounded(link(times.forward, alone.forward) -
                (backward ? harness(known_.harness.forward, times.forward_asked) : 0));
    if (!backward) return absl::OkStatus();
    measured_.backward = Rounded(link(times.backward, alone.backward) -
                                 harness(known_.harness.backward, times.backward_asked));
    const double share =
        WeightShare(link(times.input, alone.input), link(times.weight, alone.weight));
    measured_.backward_weight = Nanos(std::round(static_cast<double>(measured_.backward) * share));
    measured_.backward_input = measured_.backward - measured_.backward_weight;
    return absl::OkStatus();
  }

  static Nanos Rounded(double nanos) { return Nanos(std::round(std::max(1.0, nanos))); }

  // Which part of the backward pass the weight half is.
  double WeightShare(double input, double weight) const {
    if (!chain_->splits()) return chain_->trains_parameters() ? 1 : 0;
    return weight / std::max(input + weight, 1.0);
  }

  const Graph& graph_;
  const NodeId node_;
  const ProfileOptions& options_;
  const KnownBefore& known_;
  const at::Device device_;
  OperatorMeasurement measured_;
  std::optional<CacheWalk> walk_;  // Before each link, on a CPU.
  std::unique_ptr<OperatorChain> chain_;
};

std::vector<int64_t> SizesOf(const Graph& graph, NodeId node, int64_t most) {
  const SampleBounds bounds = graph.samples();
  std::vector<int64_t> sizes = {bounds.least};
  if (!DependsOnSamples(graph, node)) return sizes;
  const int64_t last = std::min({most, bounds.most, kMostProfiledSamples});
  for (int64_t size = 1; size <= last; size *= 2) {
    if (size > bounds.least) sizes.push_back(size);
  }
  return sizes;
}

// Errors that say that nothing more is to be measured of any operator.
bool EndsAll(const absl::Status& status) { return absl::IsCancelled(status); }

absl::StatusOr<MeasuredOperator> ProfileOperator(const Graph& graph, NodeId node,
                                                 const ProfileOptions& options,
                                                 const KnownBefore& known) {
  MeasuredOperator operator_costs = {options.day, {}};
  for (const int64_t samples : SizesOf(graph, node, options.most_samples)) {
    if (options.stopped && options.stopped()) return absl::CancelledError("stopped");
    absl::StatusOr<OperatorMeasurement> measured = absl::UnknownError("not measured");
    RETURN_IF_ERROR(
        Guarded([&] { measured = Measuring(graph, node, samples, options, known).Run(); }));
    if (!measured.ok() && (operator_costs.samples.empty() || EndsAll(measured.status())))
      return measured.status();
    if (!measured.ok()) break;
    operator_costs.samples.push_back(*measured);
  }
  return operator_costs;
}

}  // namespace

absl::StatusOr<ProfiledGraph> ProfileOperators(const Graph& graph, const ProfileOptions& options) {
  if (!graph.executable()) {
    return absl::InvalidArgumentError(
        "the graph has costs and no operators to run: it was imported from a profile");
  }
  if (options.most_samples < 1) return absl::InvalidArgumentError("samples must be positive");
  RETURN_IF_ERROR(Check(options.precision, graph, /*asynchronous=*/false));
  std::optional<at::Device> device;
  RETURN_IF_ERROR(Annotate(Guarded([&] { device.emplace(options.torch_device); }),
                           absl::StrCat("torch_device \"", options.torch_device, "\"")));
  const c10::OptionalDeviceGuard guard(device->is_cpu() ? std::nullopt : device);
  at::init_num_threads();  // OpenMP keeps their number per thread; new ones must be told.
  ASSIGN_OR_RETURN(const HarnessCost harness, MeasureHarness(*device));
  const KnownBefore known = {FindIndexBounds(graph), MixedTypes(graph, options.precision), harness};
  const std::vector<std::string> signatures = SignaturesOf(graph, options.precision);
  ProfiledGraph profiled;
  std::set<std::string> seen;
  for (int32_t v = 0; v < graph.size(); ++v) {
    const NodeId node(v);
    const std::string& signature = signatures[static_cast<size_t>(v)];
    if (!seen.insert(signature).second) continue;
    auto measured = ProfileOperator(graph, node, options, known);
    if (measured.ok()) {
      profiled.operators.emplace(signature, *std::move(measured));
    } else if (EndsAll(measured.status())) {
      return measured.status();
    } else {
      profiled.unmeasured.push_back(
          {graph.node(node).name, std::string(measured.status().message())});
    }
  }
  return profiled;
}

std::string ProfiledSoftware(int threads) {
  std::string text = absl::StrCat("stagewright ", STAGEWRIGHT_VERSION, ", torch ", TORCH_VERSION);
  if (threads > 0) absl::StrAppend(&text, ", ", threads, threads == 1 ? " thread" : " threads");
  return text;
}

}  // namespace stagewright
