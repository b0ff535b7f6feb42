#include "worker_daemon/engine/device_runner.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "worker_daemon/checkpoint/ownership.h"
#include "worker_daemon/checkpoint/shards.h"
#include "worker_daemon/data/dataset.h"
#include "worker_daemon/engine/device_plan.h"
#include "worker_daemon/engine/executor.h"
#include "worker_daemon/engine/torch_guard.h"

namespace stagewright {

std::vector<int> PeersOf(const JobSpec& spec) {
  std::set<int> peers;
  for (const Program* program : {spec.program.get(), spec.evaluation.get()}) {
    if (program == nullptr) continue;
    for (const Channel& channel : program->channels) {
      if (channel.source == spec.device) peers.insert(channel.target.value());
      if (channel.target == spec.device) peers.insert(channel.source.value());
    }
    for (const Reduction& reduction : program->reductions) {
      const auto& devices = reduction.devices;
      if (std::find(devices.begin(), devices.end(), spec.device) == devices.end()) continue;
      for (DeviceId device : devices) peers.insert(device.value());
    }
  }
  peers.erase(spec.device.value());
  return {peers.begin(), peers.end()};
}

void SetIntraOpThreads(int threads) { at::set_num_threads(threads); }

class DeviceRunner::Impl {
 public:
  explicit Impl(JobSpec spec) : spec_(std::move(spec)) {}

  absl::Status Load(Transport* transport) {
    RETURN_IF_ERROR(CheckSpec());
    ASSIGN_OR_RETURN(const DevicePlan plan,
                     MakeDevicePlan(*spec_.graph, *spec_.program, spec_.device));
    at::Device device = at::kCPU;
    RETURN_IF_ERROR(Annotate(Guarded([&] { device = at::Device(spec_.torch_device); }),
                             absl::StrCat("torch_device \"", spec_.torch_device, "\"")));
    std::vector<ParameterId> needed = plan.parameters;
    if (spec_.evaluation != nullptr) {
      ASSIGN_OR_RETURN(const DevicePlan evaluation,
                       MakeDevicePlan(*spec_.graph, *spec_.evaluation, spec_.device));
      needed.insert(needed.end(), evaluation.parameters.begin(), evaluation.parameters.end());
      ASSIGN_OR_RETURN(Dataset data,
                       Dataset::Open(*spec_.graph, evaluation.inputs, spec_.evaluation_path));
      evaluation_data_.emplace(std::move(data));
    }
    ASSIGN_OR_RETURN(Dataset data, Dataset::Open(*spec_.graph, plan.inputs, spec_.data_path));
    data_.emplace(std::move(data));
    auto sampler =
        Sampler::Create(data_->samples(), spec_.program->mini_batch, spec_.order, spec_.seed);
    if (!sampler.ok()) return Annotate(sampler.status(), spec_.data_path);
    sampler_.emplace(*std::move(sampler));
    ASSIGN_OR_RETURN(ParameterStore parameters,
                     ParameterStore::Load(*spec_.graph, needed, spec_.weights_path, device));
    parameters_.emplace(std::move(parameters));
    optimizer_.emplace(spec_.optimizer, *parameters_);
    return BuildExecutors(device, transport);
  }

  absl::Status Run() {
    at::init_num_threads();  // OpenMP keeps SetIntraOpThreads per thread; new ones must be told.
    std::vector<int64_t> samples = sampler_->MiniBatch(0);
    for (int64_t step = 0; step < spec_.steps; ++step) {
      const int64_t left = spec_.steps - 1 - step;
      std::vector<int64_t> next = left > 0 ? sampler_->MiniBatch(step + 1) : std::vector<int64_t>();
      ASSIGN_OR_RETURN(StepOutput output,
                       training_->RunStep({step, samples, spec_.program->mini_batch,
                                           absl::Now() + spec_.step_timeout, left, next}));
      Report(step, std::move(output));
      samples = std::move(next);
    }
    return absl::OkStatus();
  }

  absl::Status Evaluate() {
    if (evaluation_ == nullptr) return absl::OkStatus();
    EvaluationReport report;
    const int64_t samples = evaluation_data_->samples();
    const int64_t mini_batch = spec_.evaluation->mini_batch;
    const bool mean = spec_.graph->loss_reduction() == LossReduction::kMean;
    for (int64_t i = 0; i < EvaluationBatches(samples, mini_batch); ++i) {
      const EvaluationBatch batch = EvaluationBatchAt(samples, mini_batch, i);
      auto output =
          evaluation_->RunStep({i, batch.indices, batch.valid, absl::Now() + spec_.step_timeout});
      if (!output.ok()) return Annotate(output.status(), "evaluation");
      const double share = static_cast<double>(batch.valid) / static_cast<double>(samples);
      report.loss += mean ? output->loss * share : output->loss;
      report.loss_samples += output->loss_samples;
      report.correct += output->correct;
      report.predicted += output->predicted;
    }
    if (spec_.on_evaluation) spec_.on_evaluation(report);
    return absl::OkStatus();
  }

  void Abort(const absl::Status& status) {
    training_->Abort(status);
    if (evaluation_ != nullptr) evaluation_->Abort(status);
  }

  absl::StatusOr<std::string> WriteShard(const std::string& directory) const {
    std::vector<at::Tensor> kept;
    std::vector<ParameterBytes> bytes;
    for (ParameterId id : ParametersToWrite(*spec_.graph, *spec_.program, spec_.device)) {
      kept.push_back((*parameters_)[id].detach().to(at::kCPU).contiguous());
      const at::Tensor& tensor = kept.back();
      bytes.push_back({id, {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
    }
    if (bytes.empty()) return std::string();
    const std::string path = ShardPath(directory, spec_.device);
    RETURN_IF_ERROR(stagewright::WriteShard(*spec_.graph, bytes, path));
    return path;
  }

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  absl::Status CheckSpec() const {
    if (spec_.graph == nullptr || spec_.program == nullptr)
      return absl::InvalidArgumentError("a job needs a graph and a program");
    if (!spec_.graph->executable()) {
      return absl::InvalidArgumentError(
          absl::StrCat("graph \"", spec_.graph->name(),
                       "\" is for planning only: it has no arguments or no loss"));
    }
    if (!spec_.program->training) return absl::InvalidArgumentError("program: it does not train");
    if (spec_.evaluation != nullptr && spec_.evaluation->training)
      return absl::InvalidArgumentError("evaluation: its program trains");
    if (spec_.steps < 1) return absl::InvalidArgumentError("steps: at least one is needed");
    return CheckOptimizer(spec_.optimizer);
  }

  absl::Status BuildExecutors(at::Device device, Transport* transport) {
    ExecutorOptions options;
    options.device = device;
    options.seed = spec_.seed;
    options.loss_weight = spec_.loss_weight;
    ASSIGN_OR_RETURN(training_,
                     Executor::Create(*spec_.graph, *spec_.program, spec_.device, *parameters_,
                                      *data_, &*optimizer_, transport, options));
    for (const std::string& node : training_->BatchDependentNodes()) {
      warnings_.push_back(absl::StrCat(
          "node \"", node,
          "\" takes its statistics over a micro-batch, so training depends on the plan"));
    }
    if (spec_.evaluation == nullptr) return absl::OkStatus();
    options.first_channel = static_cast<uint32_t>(spec_.program->channels.size());
    ASSIGN_OR_RETURN(evaluation_,
                     Executor::Create(*spec_.graph, *spec_.evaluation, spec_.device, *parameters_,
                                      *evaluation_data_, nullptr, transport, options));
    if (evaluation_data_->samples() % spec_.evaluation->mini_batch == 0) return absl::OkStatus();
    return Annotate(evaluation_->CheckPartialBatches(),
                    absl::StrCat(spec_.evaluation_path, ": its ", evaluation_data_->samples(),
                                 " samples are no multiple of ", spec_.evaluation->mini_batch));
  }

  void Report(int64_t step, StepOutput output) const {
    if (!spec_.on_step) return;
    StepReport report;
    report.step = step;
    report.loss = output.loss;
    report.loss_samples = output.loss_samples;
    report.correct = output.correct;
    report.predicted = output.predicted;
    report.start = output.events.empty() ? 0 : output.events.front().start;
    for (const TraceEvent& event : output.events) {
      report.start = std::min(report.start, event.start);
      report.end = std::max(report.end, event.end);
    }
    report.events = std::move(output.events);
    spec_.on_step(std::move(report));
  }

  const JobSpec spec_;
  std::optional<Dataset> data_, evaluation_data_;
  std::optional<Sampler> sampler_;
  std::optional<ParameterStore> parameters_;
  std::optional<ParameterOptimizer> optimizer_;
  std::unique_ptr<Executor> training_, evaluation_;
  std::vector<std::string> warnings_;
};

DeviceRunner::DeviceRunner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceRunner::~DeviceRunner() = default;

absl::StatusOr<std::unique_ptr<DeviceRunner>> DeviceRunner::Create(JobSpec spec,
                                                                   Transport* transport) {
  auto impl = std::make_unique<Impl>(std::move(spec));
  RETURN_IF_ERROR(impl->Load(transport));
  return std::unique_ptr<DeviceRunner>(new DeviceRunner(std::move(impl)));
}

const std::vector<std::string>& DeviceRunner::warnings() const { return impl_->warnings(); }
absl::Status DeviceRunner::Run() { return impl_->Run(); }
absl::Status DeviceRunner::Evaluate() { return impl_->Evaluate(); }
void DeviceRunner::Abort(const absl::Status& status) { impl_->Abort(status); }
absl::StatusOr<std::string> DeviceRunner::WriteShard(const std::string& directory) const {
  return impl_->WriteShard(directory);
}

}  // namespace stagewright
