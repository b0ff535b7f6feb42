#include "worker_daemon/executor/device_runner.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/data/dataset.h"
#include "common/data/sample_lengths.h"
#include "common/validation/validate.h"
#include "worker_daemon/checkpoint/ownership.h"
#include "worker_daemon/checkpoint/shards.h"
#include "worker_daemon/checkpoint/unread_tensors.h"
#include "worker_daemon/device/current_stream.h"
#include "worker_daemon/device/device_streams.h"
#include "worker_daemon/device/host_memory.h"
#include "worker_daemon/device/memory_meter.h"
#include "worker_daemon/executor/device_checkpoint.h"
#include "worker_daemon/executor/executor.h"
#include "worker_daemon/executor/step_watch.h"
#include "worker_daemon/step/device_plan.h"
#include "worker_daemon/torch/torch_guard.h"
#include "worker_daemon/transport/all_reduce.h"
#include "worker_daemon/update/early_stop.h"

namespace stagewright {

namespace {

// Sums of evaluations go over all devices and have a channel that no program reaches.
constexpr Tag kEvaluationTag = {Tag::kMaxChannel, Traffic::kReduction, 0};

// Numbers that messages of a program have for channels and reductions, in one transport.
uint32_t ChannelsOf(const Program& program) {
  return static_cast<uint32_t>(std::max(program.channels.size(), program.reductions.size()));
}

}  // namespace

void SetIntraOpThreads(int threads) { at::set_num_threads(threads); }

class DeviceRunner::Impl {
 public:
  explicit Impl(JobSpec spec)
      : spec_(std::move(spec)), early_stop_(spec_.training.evaluation, HistoryOf(spec_)) {}

  absl::Status Load(Transport* transport) {
    absl::Status status;
    const absl::Status thrown = Guarded([&] { status = LoadAll(transport); });
    if (!thrown.ok()) status = thrown;
    if (!absl::IsResourceExhausted(status) || !memory_.has_value()) return status;
    return OutOfMemory(status, *memory_, {PredictedPeak(spec_), spec_.memory_budget});
  }

  absl::Status LoadAll(Transport* transport) {
    RETURN_IF_ERROR(CheckSpec());
    for (LengthSpec& length : AllLengths(spec_)) lengths_.emplace_back().spec = std::move(length);
    transport_ = transport;
    ASSIGN_OR_RETURN(const DevicePlan plan,
                     MakeDevicePlan(*spec_.graph, *spec_.program, spec_.device));
    at::Device device = at::kCPU;
    RETURN_IF_ERROR(Annotate(Guarded([&] {
                               device = at::Device(spec_.torch_device);
                               memory_.emplace(spec_.torch_device, spec_.memory_limit);
                             }),
                             absl::StrCat("torch_device \"", spec_.torch_device, "\"")));
    const MemoryMeter::Scope counted(&*memory_);
    streams_ = spec_.streams;
    if (streams_ == nullptr && !device.is_cpu()) streams_ = MakeDeviceStreams(device);
    const DeviceStreams::Scope on_compute(streams_.get());
    std::vector<ParameterId> needed = plan.parameters;
    if (spec_.evaluation != nullptr) {
      ASSIGN_OR_RETURN(const DevicePlan evaluation,
                       MakeDevicePlan(*spec_.graph, *spec_.evaluation, spec_.device));
      needed.insert(needed.end(), evaluation.parameters.begin(), evaluation.parameters.end());
      RETURN_IF_ERROR(OpenData(evaluation.inputs, spec_.evaluation_path, /*count=*/true,
                               evaluation_samples_, &Length::evaluation_data));
    }
    // Who reads no sample need not know which they are, if all are of one length.
    std::optional<SampleLengths> samples;
    RETURN_IF_ERROR(
        OpenData(plan.inputs, spec_.data_path, /*count=*/false, samples, &Length::data));
    if (!plan.inputs.empty() || lengths_.size() > 1) {
      auto sampler =
          Sampler::Create(*std::move(samples), spec_.program->mini_batch, spec_.order, spec_.seed);
      if (!sampler.ok()) return Annotate(sampler.status(), spec_.data_path);
      sampler_.emplace(*std::move(sampler));
    }
    if (spec_.device == UnreadWriter(*spec_.program)) {
      ASSIGN_OR_RETURN(UnreadTensors unread, UnreadTensors::Open(*spec_.graph, *spec_.program,
                                                                 spec_.weights_path, spec_.resume));
      unread_.emplace(std::move(unread));
    }
    ASSIGN_OR_RETURN(ParameterStore parameters, LoadParameters(spec_, needed, device));
    parameters_.emplace(std::move(parameters));
    OptimizerSpec optimizer = spec_.training.optimizer;
    optimizer.schedule = ForJob(optimizer.schedule, spec_.steps);
    optimizer_.emplace(optimizer, *parameters_, GroupsOf(optimizer.groups, *spec_.graph));
    RETURN_IF_ERROR(RestoreOptimizer(spec_, parameters_->ids(), *optimizer_));
    if (spec_.training.precision == Precision::kFloat16) {
      ASSIGN_OR_RETURN(LossScale scale, RestoreLossScale(spec_));
      loss_scale_.emplace(scale);
    }
    if (spec_.checkpoint_due) {
      checkpoint_.emplace(spec_, *parameters_, *optimizer_,
                          loss_scale_.has_value() ? &*loss_scale_ : nullptr,
                          unread_.has_value() ? &*unread_ : nullptr, streams_.get());
      optimizer_->SetBeforeStep([this] { checkpoint_->AwaitCopied(); });
    }
    if (spec_.records.steps > 0) {
      watch_ = MakeStepWatch(spec_, *parameters_, *optimizer_);
      optimizer_->SetOnGradient(
          [this](ParameterId id, at::Tensor& gradient) { watch_->OnGradient(id, gradient); });
    }
    return BuildExecutors(device, transport);
  }

  absl::Status Run() {
    const absl::Status status = RunSteps();
    if (checkpoint_.has_value()) checkpoint_->AwaitWritten();
    return status;
  }

  absl::Status RunSteps() {
    const DeviceStreams::Scope on_compute(streams_.get());
    at::init_num_threads();  // OpenMP keeps SetIntraOpThreads per thread; new ones must be told.
    const int64_t first = FirstStep(spec_);
    const int64_t end = EndOfJob();
    std::vector<int64_t> samples = MiniBatch(first);
    for (int64_t step = first; step < end; ++step) {
      const int64_t left = EndOfRun(step) - 1 - step;
      const double loss_scale = loss_scale_.has_value() ? loss_scale_->value() : 0;
      std::vector<int64_t> next = left > 0 ? MiniBatch(step + 1) : std::vector<int64_t>();
      if (watch_ != nullptr) RETURN_IF_ERROR(watch_->BeginStep(step));
      Executor& training = *lengths_[LengthAt(step)].training;
      ASSIGN_OR_RETURN(StepOutput output,
                       training.RunStep({.step = step,
                                         .samples = samples,
                                         .valid = spec_.program->mini_batch,
                                         .deadline = absl::Now() + spec_.step_timeout,
                                         .steps_left = left,
                                         .next_samples = next}));
      if (watch_ != nullptr) RETURN_IF_ERROR(watch_->EndStep(step, output.loss));
      std::optional<EvaluationReport> evaluation;
      if (left == 0 && IsDue(step)) {
        ASSIGN_OR_RETURN(evaluation, EvaluateTogether());
      }
      Report(step, std::move(output), loss_scale, evaluation);
      if (evaluation.has_value() && early_stop_.IsOver(evaluation->loss)) {
        if (step + 1 < spec_.steps) stopped_after_ = step + 1;
        return absl::OkStatus();
      }
      if (step + 1 < spec_.steps && checkpoint_.has_value() && spec_.checkpoint_due(step + 1))
        checkpoint_->Begin(step + 1, early_stop_.history());
      samples = left > 0 || step + 1 == end ? std::move(next) : MiniBatch(step + 1);
    }
    return absl::OkStatus();
  }

  absl::Status Evaluate() {
    if (spec_.evaluation == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(const EvaluationReport report, EvaluateHere());
    if (spec_.on_evaluation) spec_.on_evaluation(report);
    return absl::OkStatus();
  }

  int64_t stopped_after() const { return stopped_after_; }

  void Abort(const absl::Status& status) {
    for (Length& length : lengths_) {
      length.training->Abort(status);
      if (length.evaluation != nullptr) length.evaluation->Abort(status);
    }
  }

  absl::StatusOr<std::string> WriteShard(const std::string& directory) const {
    const DeviceStreams::Scope on_compute(streams_.get());
    std::vector<at::Tensor> kept;
    std::vector<ParameterBytes> bytes;
    for (ParameterId id : ParametersToWrite(*spec_.graph, *spec_.program, spec_.device)) {
      kept.push_back((*parameters_)[id].detach().to(at::kCPU).contiguous());
      const at::Tensor& tensor = kept.back();
      bytes.push_back({id, {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
    }
    std::vector<TensorView> others;
    if (unread_.has_value()) others = unread_->tensors();
    if (bytes.empty() && others.empty()) return std::string();
    const std::string path = ShardPath(directory, spec_.device);
    RETURN_IF_ERROR(stagewright::WriteShard(*spec_.graph, bytes, others, path));
    return path;
  }

  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  // What runs the samples of one shape.
  struct Length {
    LengthSpec spec;
    std::optional<Dataset> data, evaluation_data;
    std::unique_ptr<Executor> training, evaluation;
  };

  // A mini-batch of the evaluation data.
  struct Evaluated {
    Length* length = nullptr;
    EvaluationBatch batch;
  };

  // Opens the inputs of the data for every length, and says which samples are of which; how many
  // there are, where none is read and all are of one length, only to `count` them.
  absl::Status OpenData(const std::vector<InputId>& inputs, const std::string& path, bool count,
                        std::optional<SampleLengths>& samples,
                        std::optional<Dataset> Length::*data) {
    std::vector<const Graph*> graphs;
    for (const Length& length : lengths_) graphs.push_back(length.spec.graph.get());
    if (graphs.size() == 1 && !inputs.empty()) {
      ASSIGN_OR_RETURN(lengths_[0].*data, Dataset::Open(*spec_.graph, inputs, path));
      samples.emplace((lengths_[0].*data)->samples());
      return absl::OkStatus();
    }
    if (graphs.size() > 1 || count) {
      ASSIGN_OR_RETURN(samples, SampleLengths::Read(graphs, path));
    }
    for (size_t l = 0; l < lengths_.size(); ++l) {
      const bool several = graphs.size() > 1;
      auto opened = several
                        ? Dataset::Open(*graphs[l], inputs, path, *samples, static_cast<int32_t>(l))
                        : Dataset::Open(*graphs[l], inputs, path);
      if (!opened.ok()) return opened.status();
      lengths_[l].*data = *std::move(opened);
    }
    return absl::OkStatus();
  }

  // The mini-batches of the evaluation data, each of one length.
  std::vector<Evaluated> EvaluationSteps() {
    std::vector<Evaluated> steps;
    const int64_t mini_batch = spec_.evaluation->mini_batch;
    for (size_t l = 0; l < lengths_.size(); ++l) {
      const auto number = static_cast<int32_t>(l);
      const int64_t samples = evaluation_samples_->SamplesOf(number);
      for (int64_t i = 0; i < EvaluationBatches(samples, mini_batch); ++i) {
        Evaluated step{&lengths_[l], EvaluationBatchAt(samples, mini_batch, i)};
        for (int64_t& index : step.batch.indices)
          index = evaluation_samples_->IndexOf(number, index);
        steps.push_back(std::move(step));
      }
    }
    return steps;
  }

  // The part of an evaluation that this device sees.
  absl::StatusOr<EvaluationReport> EvaluateHere() {
    EvaluationReport report;
    const bool mean = spec_.graph->loss_reduction() == LossReduction::kMean;
    RETURN_IF_ERROR(Annotate(CollectTotals(), "evaluation"));
    int64_t i = 0;
    for (const Evaluated& step : EvaluationSteps()) {
      auto output = step.length->evaluation->RunStep({.step = i++,
                                                      .samples = step.batch.indices,
                                                      .valid = step.batch.valid,
                                                      .deadline = absl::Now() + spec_.step_timeout,
                                                      .totals = &*evaluation_totals_});
      if (!output.ok()) return Annotate(output.status(), "evaluation");
      const double share = static_cast<double>(step.batch.valid) /
                           static_cast<double>(evaluation_samples_->samples());
      report.loss += mean ? output->loss * share : output->loss;
      report.loss_samples += output->loss_samples;
      report.correct += output->correct;
      report.predicted += output->predicted;
    }
    return report;
  }

  // Totals of the whole evaluation data, so that its loss does not depend on how it is cut into
  // batches. What they depend on does not change, so once is enough.
  absl::Status CollectTotals() {
    if (evaluation_totals_.has_value()) return absl::OkStatus();
    const MemoryMeter::Scope counted(&*memory_);
    const DeviceStreams::Scope on_compute(streams_.get());
    std::vector<at::Tensor> sums;
    for (const Evaluated& step : EvaluationSteps()) {
      const std::span<const int64_t> samples(step.batch.indices.data(),
                                             static_cast<size_t>(step.batch.valid));
      absl::StatusOr<std::vector<at::Tensor>> totals;
      RETURN_IF_ERROR(Guarded([&] { totals = step.length->evaluation->TotalsOf(samples); }));
      RETURN_IF_ERROR(totals.status());
      if (totals->empty()) break;
      for (size_t t = 0; t < totals->size(); ++t) {
        if (sums.size() <= t) {
          sums.push_back((*totals)[t]);
        } else {
          sums[t] = sums[t] + (*totals)[t];
        }
      }
    }
    evaluation_totals_ = std::move(sums);
    return absl::OkStatus();
  }

  // The whole evaluation: shares are added up over all devices.
  absl::StatusOr<EvaluationReport> EvaluateTogether() {
    ASSIGN_OR_RETURN(EvaluationReport report, EvaluateHere());
    std::vector<int> devices;
    for (const DeviceProgram& device : spec_.program->devices)
      devices.push_back(device.device.value());
    if (devices.size() == 1) return report;
    double sums[] = {report.loss, static_cast<double>(report.loss_samples),
                     static_cast<double>(report.correct), static_cast<double>(report.predicted)};
    RETURN_IF_ERROR(
        Annotate(AllReduceSum(*transport_, devices, kEvaluationTag, sums, std::size(sums),
                              Element::kFloat64, absl::Now() + spec_.step_timeout),
                 "evaluation"));
    return EvaluationReport{sums[0], static_cast<int64_t>(sums[1]), static_cast<int64_t>(sums[2]),
                            static_cast<int64_t>(sums[3])};
  }

  // Indices of the samples of a step; any where none is read.
  std::vector<int64_t> MiniBatch(int64_t step) {
    if (sampler_.has_value()) return sampler_->MiniBatch(step);
    return std::vector<int64_t>(static_cast<size_t>(spec_.program->mini_batch), 0);
  }

  size_t LengthAt(int64_t step) {
    return sampler_.has_value() ? static_cast<size_t>(sampler_->LengthAt(step)) : 0;
  }

  int64_t EndOfJob() const {
    if (spec_.records.steps == 0) return spec_.steps;
    return std::min(spec_.steps, FirstStep(spec_) + spec_.records.steps);
  }

  bool IsDue(int64_t step) const {
    return EvaluatesInBetween(spec_) && (step + 1) % spec_.training.evaluation.every == 0;
  }

  // The end of the steps from `step` on that follow each other without an evaluation, which is of
  // one version of the parameters.
  int64_t EndOfRun(int64_t step) const {
    if (!EvaluatesInBetween(spec_)) return EndOfJob();
    return std::min(EndOfJob(),
                    (step / spec_.training.evaluation.every + 1) * spec_.training.evaluation.every);
  }

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
    RETURN_IF_ERROR(CheckLengths(spec_));
    uint32_t channels = 0;
    for (const Program* program : ProgramsOf(spec_)) channels += ChannelsOf(*program);
    if (channels >= kEvaluationTag.channel)
      return absl::InvalidArgumentError("lengths: their programs have too many channels together");
    if (spec_.steps < 1) return absl::InvalidArgumentError("steps: at least one is needed");
    const auto& reductions = spec_.program->reductions;
    const bool sums_norm = !reductions.empty() && reductions.back().gradient_norm;
    if (sums_norm != NeedsGradientNorm(spec_.training)) {
      return absl::InvalidArgumentError(
          sums_norm
              ? "program: it sums a norm of gradients, but neither clipping, skipping nor float16 "
                "needs it"
              : "optimizer.max_gradient_norm, on_non_finite, precision: the program does not sum a "
                "norm of gradients");
    }
    RETURN_IF_ERROR(Check(
        spec_.training, {*spec_.graph, spec_.program->asynchronous, spec_.evaluation != nullptr}));
    if (spec_.checkpoint_due && spec_.program->asynchronous) {
      return absl::InvalidArgumentError(
          "checkpoints need a synchronous schedule: an asynchronous one has no state between "
          "steps");
    }
    if (spec_.records.steps > 0 && spec_.program->asynchronous) {
      return absl::InvalidArgumentError(
          "records: an asynchronous plan updates with gradients of older weights, so its steps are "
          "not those of a single device");
    }
    if (spec_.records.compare && spec_.program->devices.size() != 1)
      return absl::InvalidArgumentError("records.compare: the program must be of a single device");
    return CheckResume(spec_);
  }

  absl::Status BuildExecutors(at::Device device, Transport* transport) {
    ExecutorOptions options;
    options.device = device;
    options.memory = &*memory_;
    options.expected_memory = {PredictedPeak(spec_), spec_.memory_budget};
    options.seed = spec_.seed;
    options.loss_weight = spec_.loss_weight;
    options.on_non_finite = spec_.training.on_non_finite;
    options.max_gradient_norm = spec_.training.max_gradient_norm;
    options.precision = spec_.training.precision;
    clock_ = spec_.clock;
    if (clock_ == nullptr) {
      void* const stream = device.is_cpu() ? nullptr : CurrentStream(spec_.torch_device);
      ASSIGN_OR_RETURN(clock_, MakeDeviceClock(spec_.torch_device, stream));
    }
    options.clock = clock_.get();
    options.streams = streams_.get();
    options.loss_scale = loss_scale_.has_value() ? &*loss_scale_ : nullptr;
    for (Length& length : lengths_) {
      ASSIGN_OR_RETURN(length.training, Executor::Create(*length.spec.graph, *length.spec.program,
                                                         spec_.device, *parameters_, *length.data,
                                                         &*optimizer_, transport, options));
      options.first_channel += ChannelsOf(*length.spec.program);
    }
    for (const std::string& node : lengths_[0].training->BatchDependentNodes()) {
      warnings_.push_back(absl::StrCat(
          "node \"", node,
          "\" takes its statistics over a micro-batch, so training depends on the plan"));
    }
    if (spec_.evaluation == nullptr) return absl::OkStatus();
    options.loss_scale = nullptr;
    for (size_t l = 0; l < lengths_.size(); ++l) {
      Length& length = lengths_[l];
      ASSIGN_OR_RETURN(
          length.evaluation,
          Executor::Create(*length.spec.graph, *length.spec.evaluation, spec_.device, *parameters_,
                           *length.evaluation_data, nullptr, transport, options));
      options.first_channel += ChannelsOf(*length.spec.evaluation);
      const int64_t samples = evaluation_samples_->SamplesOf(static_cast<int32_t>(l));
      if (samples % spec_.evaluation->mini_batch == 0) continue;
      RETURN_IF_ERROR(
          Annotate(length.evaluation->CheckPartialBatches(),
                   absl::StrCat(spec_.evaluation_path, ": its ", samples,
                                " samples are no multiple of ", spec_.evaluation->mini_batch)));
    }
    return absl::OkStatus();
  }

  void Report(int64_t step, StepOutput output, double loss_scale,
              std::optional<EvaluationReport> evaluation) const {
    if (!spec_.on_step) return;
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
    report.evaluation = evaluation;
    report.memory = memory_->figures();
    spec_.on_step(std::move(report));
  }

  const JobSpec spec_;
  std::optional<MemoryMeter> memory_;
  std::shared_ptr<DeviceStreams> streams_;  // Null on a CPU.
  std::deque<Length> lengths_;              // As AllLengths.
  std::optional<SampleLengths> evaluation_samples_;
  std::optional<std::vector<at::Tensor>> evaluation_totals_;
  std::optional<Sampler> sampler_;  // Nothing: no stage here reads a sample.
  std::optional<ParameterStore> parameters_;
  std::optional<ParameterOptimizer> optimizer_;
  std::optional<LossScale> loss_scale_;
  std::optional<UnreadTensors> unread_;  // On the device that writes them.
  std::shared_ptr<DeviceClock> clock_;   // Null on a CPU.
  std::optional<DeviceCheckpoint> checkpoint_;
  std::unique_ptr<StepWatch> watch_;  // Null: no records.
  Transport* transport_ = nullptr;
  EarlyStop early_stop_;
  int64_t stopped_after_ = 0;
  std::vector<std::string> warnings_;
};

DeviceRunner::DeviceRunner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceRunner::~DeviceRunner() {
  impl_.reset();
  ReleaseFreedHostMemory();
}

absl::StatusOr<std::unique_ptr<DeviceRunner>> DeviceRunner::Create(JobSpec spec,
                                                                   Transport* transport) {
  auto impl = std::make_unique<Impl>(std::move(spec));
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
