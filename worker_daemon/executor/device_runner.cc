#include "worker_daemon/executor/device_runner.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <deque>
#include <span>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "common/data/dataset.h"
#include "common/data/sample_lengths.h"
#include "common/memory/parameter_shares.h"
#include "common/validation/validate.h"
#include "worker_daemon/checkpoint/ownership.h"
#include "worker_daemon/checkpoint/shards.h"
#include "worker_daemon/checkpoint/unread_tensors.h"
#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/device/host_memory.h"
#include "worker_daemon/device/memory_meter.h"
#include "worker_daemon/executor/check_job.h"
#include "worker_daemon/executor/device_checkpoint.h"
#include "worker_daemon/executor/evaluation_pass.h"
#include "worker_daemon/executor/executor.h"
#include "worker_daemon/executor/job_length.h"
#include "worker_daemon/executor/step_watch.h"
#include "worker_daemon/step/device_plan.h"
#include "worker_daemon/torch/current_stream.h"
#include "worker_daemon/torch/torch_guard.h"
#include "worker_daemon/update/early_stop.h"

namespace stagewright {

void SetIntraOpThreads(int threads) { at::set_num_threads(threads); }

class DeviceRunner::Impl {
 public:
  explicit Impl(DeviceJob job)
      : job_(std::move(job)), early_stop_(job_.training.evaluation, HistoryOf(job_)) {}

  absl::Status Load(Transport* transport) {
    absl::Status status;
    const absl::Status thrown = Guarded([&] { status = LoadAll(transport); });
    if (!thrown.ok()) status = thrown;
    if (!absl::IsResourceExhausted(status) || !memory_.has_value()) return status;
    return OutOfMemory(status, *memory_, {PredictedPeak(job_), job_.memory_budget});
  }

  absl::Status LoadAll(Transport* transport) {
    RETURN_IF_ERROR(CheckJob(job_));
    for (LengthSpec& length : AllLengths(job_)) lengths_.emplace_back().spec = std::move(length);
    transport_ = transport;
    ASSIGN_OR_RETURN(const DevicePlan plan,
                     MakeDevicePlan(*job_.graph, *job_.program, job_.device));
    at::Device device = at::kCPU;
    RETURN_IF_ERROR(Annotate(Guarded([&] {
                               device = at::Device(job_.torch_device);
                               memory_.emplace(job_.torch_device, job_.memory_limit);
                             }),
                             absl::StrCat("torch_device \"", job_.torch_device, "\"")));
    const MemoryMeter::Scope counted(&*memory_);
    streams_ = job_.streams;
    if (streams_ == nullptr && !device.is_cpu()) streams_ = MakeDeviceStreams(device);
    const DeviceStreams::Scope on_compute(streams_.get());
    std::vector<ParameterId> needed = plan.parameters;
    if (job_.evaluation != nullptr) {
      ASSIGN_OR_RETURN(const DevicePlan evaluation,
                       MakeDevicePlan(*job_.graph, *job_.evaluation, job_.device));
      needed.insert(needed.end(), evaluation.parameters.begin(), evaluation.parameters.end());
      RETURN_IF_ERROR(OpenData(evaluation.inputs, job_.evaluation_path, /*count=*/true, lengths_,
                               &JobLength::evaluation_data, evaluation_samples_));
    }
    // Who reads no sample need not know which they are, if all are of one length.
    std::optional<SampleLengths> samples;
    RETURN_IF_ERROR(OpenData(plan.inputs, job_.data_path, /*count=*/false, lengths_,
                             &JobLength::data, samples));
    if (!plan.inputs.empty() || lengths_.size() > 1) {
      auto sampler =
          Sampler::Create(*std::move(samples), job_.program->mini_batch, job_.order, job_.seed);
      if (!sampler.ok()) return Annotate(sampler.status(), job_.data_path);
      sampler_.emplace(*std::move(sampler));
    }
    if (job_.device == UnreadWriter(*job_.program)) {
      ASSIGN_OR_RETURN(UnreadTensors unread, UnreadTensors::Open(*job_.graph, *job_.program,
                                                                 job_.weights_path, job_.resume));
      unread_.emplace(std::move(unread));
    }
    ASSIGN_OR_RETURN(ParameterStore parameters, LoadParameters(job_, needed, device));
    parameters_.emplace(std::move(parameters));
    OptimizerSpec optimizer = job_.training.optimizer;
    optimizer.schedule = ForJob(optimizer.schedule, job_.steps);
    optimizer_.emplace(optimizer, *parameters_, GroupsOf(optimizer.groups, *job_.graph));
    optimizer_->SetShares(SharesOn(*job_.graph, *job_.program, job_.device));
    RETURN_IF_ERROR(RestoreOptimizer(job_, parameters_->ids(), *optimizer_));
    if (job_.training.precision == Precision::kFloat16) {
      ASSIGN_OR_RETURN(LossScale scale, RestoreLossScale(job_));
      loss_scale_.emplace(scale);
    }
    if (job_.checkpoint_due) {
      checkpoint_.emplace(job_, *parameters_, *optimizer_,
                          loss_scale_.has_value() ? &*loss_scale_ : nullptr,
                          unread_.has_value() ? &*unread_ : nullptr, streams_.get());
      optimizer_->SetBeforeStep([this] { checkpoint_->AwaitCopied(); });
    }
    if (job_.records.steps > 0) {
      watch_ = MakeStepWatch(job_, *parameters_, *optimizer_);
      optimizer_->SetOnGradient(
          [this](ParameterId id, at::Tensor& gradient) { watch_->OnGradient(id, gradient); });
    }
    return BuildExecutors(device, transport);
  }

  absl::Status Run() {
    absl::Status status = RunSteps();
    if (checkpoint_.has_value()) checkpoint_->AwaitWritten();
    return status;
  }

  absl::Status RunSteps() {
    const DeviceStreams::Scope on_compute(streams_.get());
    at::init_num_threads();  // OpenMP keeps SetIntraOpThreads per thread; new ones must be told.
    const int64_t first = FirstStep(job_);
    const int64_t end = EndOfJob();
    std::vector<int64_t> samples = MiniBatch(first);
    for (int64_t step = first; step < end; ++step) {
      const int64_t left = EndOfRun(step) - 1 - step;
      const double loss_scale = loss_scale_.has_value() ? loss_scale_->value() : 0;
      std::vector<int64_t> next = step + 1 < end ? MiniBatch(step + 1) : std::vector<int64_t>();
      if (watch_ != nullptr) RETURN_IF_ERROR(watch_->BeginStep(step));
      Executor& training = *lengths_[LengthAt(step)].training;
      Executor* const after = next.empty() ? nullptr : &*lengths_[LengthAt(step + 1)].training;
      if (after != nullptr && after != &training) after->GatherAhead(next);
      ASSIGN_OR_RETURN(
          StepOutput output,
          training.RunStep({.step = step,
                            .samples = samples,
                            .valid = job_.program->mini_batch,
                            .deadline = SteadyNow() + job_.step_timeout,
                            .steps_left = left,
                            .next_samples = after == &training ? next : std::span<const int64_t>(),
                            .time_operators = job_.time_operators && job_.time_operators(step)}));
      if (watch_ != nullptr) RETURN_IF_ERROR(watch_->EndStep(step, output.loss));
      std::optional<EvaluationReport> evaluation;
      if (left == 0 && IsDue(step)) {
        ASSIGN_OR_RETURN(evaluation, evaluation_->RunTogether(transport_));
      }
      Report(step, std::move(output), loss_scale, evaluation);
      if (evaluation.has_value() && early_stop_.IsOver(evaluation->loss)) {
        if (step + 1 < job_.steps) stopped_after_ = step + 1;
        return absl::OkStatus();
      }
      if (step + 1 < job_.steps && checkpoint_.has_value()) SaveIfDue(step + 1);
      samples = std::move(next);
    }
    return absl::OkStatus();
  }

  absl::Status Evaluate() {
    if (job_.evaluation == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(const EvaluationReport report, evaluation_->RunHere());
    if (job_.on_evaluation) job_.on_evaluation(report);
    return absl::OkStatus();
  }

  int64_t stopped_after() const { return stopped_after_; }

  void Abort(const absl::Status& status) {
    for (JobLength& length : lengths_) {
      length.training->Abort(status);
      if (length.evaluation != nullptr) length.evaluation->Abort(status);
    }
  }

  absl::StatusOr<std::string> WriteShard(const std::string& directory) const {
    std::vector<at::Tensor> kept;
    std::vector<ParameterBytes> bytes;
    RETURN_IF_ERROR(Guarded([&] {
      const DeviceStreams::Scope on_compute(streams_.get());
      for (ParameterId id : ParametersToWrite(*job_.graph, *job_.program, job_.device)) {
        kept.push_back((*parameters_)[id].detach().to(at::kCPU).contiguous());
        const at::Tensor& tensor = kept.back();
        bytes.push_back({id, {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
      }
    }));
    std::vector<TensorView> others;
    if (unread_.has_value()) others = unread_->tensors();
    if (bytes.empty() && others.empty()) return std::string();
    const std::string path = ShardPath(directory, job_.device);
    RETURN_IF_ERROR(stagewright::WriteShard(*job_.graph, bytes, others, path));
    return path;
  }

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void SaveIfDue(int64_t steps) {
    if (!job_.checkpoint_due(steps)) return;
    const bool holds = job_.holds && job_.holds();
    checkpoint_->Begin(steps, early_stop_.history());
    if (holds) job_.await_go_on();
  }

  // Indices of the samples of a step; any where none is read.
  std::vector<int64_t> MiniBatch(int64_t step) {
    if (sampler_.has_value()) return sampler_->MiniBatch(step);
    return std::vector<int64_t>(static_cast<size_t>(job_.program->mini_batch), 0);
  }

  size_t LengthAt(int64_t step) {
    return sampler_.has_value() ? static_cast<size_t>(sampler_->LengthAt(step)) : 0;
  }

  int64_t EndOfJob() const {
    if (job_.records.steps == 0) return job_.steps;
    return std::min(job_.steps, FirstStep(job_) + job_.records.steps);
  }

  bool IsDue(int64_t step) const {
    return EvaluatesInBetween(job_) && (step + 1) % job_.training.evaluation.every == 0;
  }

  // The end of the steps from `step` on that follow each other without an evaluation or checkpoint,
  // which are of one version of the parameters.
  int64_t EndOfRun(int64_t step) const {
    int64_t end = EndOfJob();
    if (EvaluatesInBetween(job_)) {
      end = std::min(end,
                     (step / job_.training.evaluation.every + 1) * job_.training.evaluation.every);
    }
    return job_.flush_after ? std::min(end, job_.flush_after(step)) : end;
  }

  absl::Status BuildExecutors(at::Device device, Transport* transport) {
    ExecutorOptions options;
    options.device = device;
    options.memory = &*memory_;
    options.expected_memory = {PredictedPeak(job_), job_.memory_budget};
    options.seed = job_.seed;
    options.loss_weight = job_.loss_weight;
    options.on_non_finite = job_.training.on_non_finite;
    options.max_gradient_norm = job_.training.max_gradient_norm;
    options.precision = job_.training.precision;
    clock_ = job_.clock;
    if (clock_ == nullptr) {
      void* const stream = device.is_cpu() ? nullptr : CurrentStream(job_.torch_device);
      ASSIGN_OR_RETURN(clock_, MakeDeviceClock(job_.torch_device, stream));
    }
    options.clock = clock_.get();
    options.streams = streams_.get();
    options.loss_scale = loss_scale_.has_value() ? &*loss_scale_ : nullptr;
    for (JobLength& length : lengths_) {
      ASSIGN_OR_RETURN(length.training, Executor::Create(*length.spec.graph, *length.spec.program,
                                                         job_.device, *parameters_, *length.data,
                                                         &*optimizer_, transport, options));
      options.first_channel += ChannelsOf(*length.spec.program);
    }
    for (const std::string& node : lengths_[0].training->BatchDependentNodes()) {
      warnings_.push_back(absl::StrCat(
          "node \"", node,
          "\" takes its statistics over a micro-batch, so training depends on the plan"));
    }
    if (job_.evaluation == nullptr) return absl::OkStatus();
    evaluation_.emplace(job_, lengths_, *evaluation_samples_, *memory_, streams_.get());
    options.loss_scale = nullptr;
    for (size_t l = 0; l < lengths_.size(); ++l) {
      JobLength& length = lengths_[l];
      ASSIGN_OR_RETURN(
          length.evaluation,
          Executor::Create(*length.spec.graph, *length.spec.evaluation, job_.device, *parameters_,
                           *length.evaluation_data, nullptr, transport, options));
      options.first_channel += ChannelsOf(*length.spec.evaluation);
      const int64_t samples = evaluation_samples_->SamplesOf(static_cast<int32_t>(l));
      if (samples % job_.evaluation->mini_batch == 0) continue;
      RETURN_IF_ERROR(
          Annotate(length.evaluation->CheckPartialBatches(),
                   absl::StrCat(job_.evaluation_path, ": its ", samples,
                                " samples are no multiple of ", job_.evaluation->mini_batch)));
    }
    return absl::OkStatus();
  }

  void Report(int64_t step, StepOutput output, double loss_scale,
              std::optional<EvaluationReport> evaluation) const {
    if (!job_.on_step) return;
    StepReport report;
    report.step = step;
    report.loss = output.loss;
    report.loss_samples = output.loss_samples;
    report.correct = output.correct;
    report.predicted = output.predicted;
    report.skipped = output.skipped;
    report.loss_scale = loss_scale;
    report.start = output.events.empty() ? 0 : output.events.front().start;
    for (const TraceEvent& event : output.events) {
      report.start = std::min(report.start, event.start);
      report.end = std::max(report.end, event.end);
    }
    report.events = std::move(output.events);
    report.operators = std::move(output.operators);
    report.evaluation = evaluation;
    report.memory = memory_->figures();
    job_.on_step(std::move(report));
  }

  const DeviceJob job_;
  std::optional<MemoryMeter> memory_;
  std::shared_ptr<DeviceStreams> streams_;  // Null on a CPU.
  std::deque<JobLength> lengths_;           // As AllLengths.
  std::optional<SampleLengths> evaluation_samples_;
  std::optional<Sampler> sampler_;  // Nothing: no stage here reads a sample.
  std::optional<ParameterStore> parameters_;
  std::optional<ParameterOptimizer> optimizer_;
  std::optional<LossScale> loss_scale_;
  std::optional<UnreadTensors> unread_;  // On the device that writes them.
  std::shared_ptr<DeviceClock> clock_;   // Null on a CPU.
  std::optional<DeviceCheckpoint> checkpoint_;
  std::optional<EvaluationPass> evaluation_;  // If there is one.
  std::unique_ptr<StepWatch> watch_;          // Null: no records.
  Transport* transport_ = nullptr;
  EarlyStop early_stop_;
  int64_t stopped_after_ = 0;
  std::vector<std::string> warnings_;
};

DeviceRunner::DeviceRunner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceRunner::~DeviceRunner() {
  impl_.reset();
  ReleaseFreedMemory();
}

absl::StatusOr<std::unique_ptr<DeviceRunner>> DeviceRunner::Create(DeviceJob job,
                                                                   Transport* transport) {
  auto impl = std::make_unique<Impl>(std::move(job));
  RETURN_IF_ERROR(impl->Load(transport));
  return std::unique_ptr<DeviceRunner>(new DeviceRunner(std::move(impl)));
}

const std::vector<std::string>& DeviceRunner::warnings() const { return impl_->warnings(); }
absl::Status DeviceRunner::Run() { return impl_->Run(); }
int64_t DeviceRunner::stopped_after() const { return impl_->stopped_after(); }
absl::Status DeviceRunner::Evaluate() { return impl_->Evaluate(); }
void DeviceRunner::Abort(const absl::Status& status) { impl_->Abort(status); }
absl::StatusOr<std::string> DeviceRunner::WriteShard(const std::string& directory) const {
  return impl_->WriteShard(directory);
}

}  // namespace stagewright
