#include "worker_daemon/daemon/worker_run.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/atomic_file.h"
#include "common/base/error_details.h"
#include "common/clock/steady_now.h"
#include "common/log/log.h"
#include "worker_daemon/checkpoint/output_owner.h"
#include "worker_daemon/checkpoint/shards.h"
#include "worker_daemon/daemon/device_transport.h"
#include "worker_daemon/daemon/places/path_checks.h"
#include "worker_daemon/daemon/places/run_weights.h"
#include "worker_daemon/daemon/prepared_job.h"
#include "worker_daemon/data/path_roots.h"
#include "worker_daemon/device/device_fault.h"
#include "worker_daemon/transport/unreached.h"

namespace stagewright {
namespace {

constexpr absl::Duration kConnectDeadline = absl::Seconds(60);
constexpr absl::Duration kBetweenTellsOfFetching = absl::Seconds(2);

}  // namespace

WorkerRun::WorkerRun(v1::Prepare prepare, DeviceFinder find_device, Reporter report,
                     WorkerMetrics* metrics, Places places, FaultReporter on_fault)
    : prepare_(std::move(prepare)),
      places_(std::move(places)),
      find_device_(std::move(find_device)),
      report_(std::move(report)),
      metrics_(metrics),
      on_fault_(std::move(on_fault)),
      checkpoints_(
          prepare_,
          [this](v1::ConnectRequest message) { Report(std::move(message), /*remember=*/false); }),
      traces_(prepare_) {
  Enqueue([this] {
    const absl::Status prepared = DoPrepare();
    return prepared.ok() ? prepared : InFields(prepared);
  });
  thread_ = std::thread([this] { Loop(); });
}

WorkerRun::~WorkerRun() {
  Abort("the job is over on this worker");
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
  }
  thread_.join();
  RemoveShards();
  if (metrics_ != nullptr) metrics_->Forget(job());
}

void WorkerRun::Connect(v1::ConnectPeers message) {
  Enqueue([this, message = std::move(message)] { return DoConnect(message); });
}
void WorkerRun::Start() {
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(started_, true)) return;
  }
  Enqueue([this] { return DoRun(); });
}
void WorkerRun::Merge(v1::Merge message) {
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(merges_, true)) return;
  }
  Enqueue([this, message = std::move(message)] { return DoMerge(message); });
}

void WorkerRun::WriteManifest(const v1::WriteManifest& message) {
  std::shared_ptr<const Graph> graph;
  {
    absl::MutexLock lock(&mutex_);
    graph = prepared_graph_;
  }
  checkpoints_.Complete(message, std::move(graph));
}

void WorkerRun::Abort(const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  if (!aborted_.ok()) return;
  aborted_ = absl::CancelledError(reason);
  commands_.clear();
  for (const auto& device : devices_) {
    if (device->runner != nullptr) device->runner->Abort(aborted_);
    if (device->transport != nullptr) device->transport->Abort(aborted_);
  }
  checkpoints_.Abort();
}

bool WorkerRun::IsAborted() {
  absl::MutexLock lock(&mutex_);
  return !aborted_.ok();
}

void WorkerRun::RepeatSteps() {
  absl::MutexLock lock(&mutex_);
  if (!steps_.empty()) report_(StepsSoFar());
}

void WorkerRun::RepeatLastReport() {
  RepeatSteps();
  checkpoints_.RepeatShares();
  absl::MutexLock lock(&mutex_);
  if (last_report_.has_value()) report_(*last_report_);
}

void WorkerRun::Enqueue(std::function<absl::Status()> command) {
  absl::MutexLock lock(&mutex_);
  if (aborted_.ok()) commands_.push_back(std::move(command));
}

void WorkerRun::Loop() {
  while (true) {
    std::function<absl::Status()> command;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](WorkerRun* run)
               ABSL_NO_THREAD_SAFETY_ANALYSIS { return run->closing_ || !run->commands_.empty(); },
          this));
      if (commands_.empty()) return;
      command = std::move(commands_.front());
      commands_.pop_front();
    }
    const absl::Status status = command();
    if (status.ok()) continue;
    Fail(status);
    // It may have shown since the failure was told.
    if (const absl::Status fault = Fault(); !fault.ok() && on_fault_ != nullptr) on_fault_(fault);
  }
}

absl::Status WorkerRun::InFields(const absl::Status& failed) {
  // A job that starts again may do without what it read first, nobody hears of one that was
  // aborted, and no field is to blame for what may pass.
  if (prepare_.restart() || IsAborted() || IsOfStorage(failed)) return failed;
  v1::CheckPaths asked;
  *asked.mutable_spec() = prepare_.spec();
  asked.set_run(prepare_.run());
  const absl::Status places = CheckPlaces(places_, asked, [this] { return IsAborted(); });
  return places.ok() ? failed : places;
}

absl::Status WorkerRun::DoPrepare() {
  RETURN_IF_ERROR(CheckPaths(places_.roots, prepare_.spec()));
  RETURN_IF_ERROR(CheckWrites(places_.roots, "spec.output_path", ShardDirectory()));
  ASSIGN_OR_RETURN(DeviceJob base, JobFromPrepare(prepare_));
  graph_ = base.graph;
  program_ = base.program;
  training_ = base.training;
  total_steps_ = base.steps;
  training_.optimizer.schedule = ForJob(training_.optimizer.schedule, total_steps_);
  v1::ConnectRequest message;
  checkpoints_.CompleteEarlier(*graph_);
  RETURN_IF_ERROR(checkpoints_.Resume(message.mutable_prepared()));
  first_step_ = message.prepared().first_step();
  RETURN_IF_ERROR(MakeDirectories(ShardDirectory()));
  RETURN_IF_ERROR(AddDevices(std::move(base), *message.mutable_prepared()));
  // Last, since it may remove what another job has left.
  RETURN_IF_ERROR(checkpoints_.TakeOutput());
  message.mutable_prepared()->set_job(job());
  message.mutable_prepared()->set_generation(generation());
  message.mutable_prepared()->set_total_steps(total_steps_);
  {
    absl::MutexLock lock(&mutex_);
    prepared_graph_ = graph_;
  }
  Report(std::move(message), /*remember=*/true);
  return absl::OkStatus();
}

absl::Status WorkerRun::AddDevices(DeviceJob base, v1::Prepared& prepared) {
  if (prepare_.devices_size() != prepare_.device_names_size()) {
    return absl::InvalidArgumentError("prepare.device_names: one per device is needed");
  }
  // A device that the plan leaves idle has no program.
  std::set<DeviceId> with_work;
  for (const DeviceProgram& device : program_->devices) with_work.insert(device.device);
  std::vector<int> own;
  std::vector<DeviceId> ids;
  for (int i = 0; i < prepare_.devices_size(); ++i) {
    if (!with_work.contains(DeviceId(prepare_.devices(i)))) continue;
    own.push_back(i);
    ids.emplace_back(prepare_.devices(i));
  }
  DeviceJob common = base;
  checkpoints_.AddTo(common);  // It may go on from one.
  ASSIGN_OR_RETURN(const RunWeights weights, RunWeights::OfDevices(
                                                 places_.artifacts, common, ids,
                                                 [this] { return IsAborted(); }, TellFetched()));
  if (weights.fetched_bytes() > 0) {
    Log(LogLevel::kInfo, "fetched its part of the weights",
        {{"job", job()},
         {"generation", generation()},
         {"artifact", base.weights_path},
         {"bytes", weights.fetched_bytes()}});
  }
  base.weights_path = weights.path();
  for (int i : own) {
    RETURN_IF_ERROR(weights.Named(AddDevice(base, prepare_.devices(i), prepare_.device_names(i))));
    absl::MutexLock lock(&mutex_);
    if (!aborted_.ok()) return aborted_;
    if (devices_.back()->transport == nullptr) continue;
    v1::DeviceAddress* address = prepared.add_addresses();
    address->set_device(prepare_.devices(i));
    address->set_address(devices_.back()->transport->Address());
  }
  return absl::OkStatus();
}

FetchProgress WorkerRun::TellFetched() const {
  const auto next = std::make_shared<std::atomic<int64_t>>(
      absl::ToUnixNanos(SteadyNow() + kBetweenTellsOfFetching));
  return [this, next](uint64_t fetched, uint64_t total) {
    const absl::Time now = SteadyNow();
    int64_t due = next->load();
    const int64_t then = absl::ToUnixNanos(now + kBetweenTellsOfFetching);
    if (absl::ToUnixNanos(now) < due || !next->compare_exchange_strong(due, then)) return;
    v1::ConnectRequest message;
    v1::Fetching* fetching = message.mutable_fetching();
    fetching->set_job(job());
    fetching->set_generation(generation());
    fetching->set_fetched_bytes(static_cast<int64_t>(fetched));
    fetching->set_total_bytes(static_cast<int64_t>(total));
    report_(std::move(message));
  };
}

absl::Status WorkerRun::AddDevice(const DeviceJob& base, int32_t index, const std::string& name) {
  auto device = std::make_unique<Device>();
  device->id = DeviceId(index);
  device->name = name;
  DeviceJob spec = base;
  spec.device = device->id;
  const std::optional<OfferedDevice> offered = find_device_(name);
  if (!offered.has_value())
    return absl::InvalidArgumentError(absl::StrCat("this worker has no device ", name));
  spec.torch_device = offered->torch_device;
  spec.memory_budget = offered->memory;
  spec.memory_limit = offered->memory_limit;
  const Bytes peak = PredictedPeak(spec);
  if (peak > offered->memory) {
    return absl::ResourceExhaustedError(absl::StrCat("device ", name, ": its program needs ", peak,
                                                     " bytes of memory, it has ", offered->memory));
  }
  device->offered = *offered;
  device->peers = PeersOf(spec);
  device->neighbours = NeighboursOf(spec);
  device->collectives = CollectivesOf(spec);
  if (!device->peers.empty()) {
    ASSIGN_OR_RETURN(
        device->transport,
        MakeDeviceTransport({job(), static_cast<uint64_t>(generation()), device->id.value()},
                            *offered, prepare_.transport_key()));
  }
  Device* raw = device.get();
  spec.on_step = [this, raw](StepReport report) { OnStep(*raw, std::move(report)); };
  checkpoints_.AddTo(spec);
  // Here, since what the planner is told may be told again.
  spec.on_checkpoint = [this, tell = std::move(spec.on_checkpoint)](CheckpointReport report) {
    if (metrics_ != nullptr) metrics_->ObserveCheckpoint(job(), report.stall);
    tell(std::move(report));
  };
  spec.time_operators = [this](int64_t step) { return traces_.TimesOperators(step); };
  spec.on_evaluation = [this](const EvaluationReport& report) { OnEvaluation(report); };
  auto runner = DeviceRunner::Create(std::move(spec), device->transport.get());
  if (!runner.ok()) return Annotate(runner.status(), absl::StrCat("device ", name));
  device->runner = *std::move(runner);
  for (const std::string& warning : device->runner->warnings()) {
    Log(LogLevel::kWarning, warning,
        {{"job", job()}, {"generation", generation()}, {"device", name}});
  }
  if (metrics_ != nullptr) metrics_->SetPeakMemory(job(), name, peak);
  absl::MutexLock lock(&mutex_);
  devices_.push_back(std::move(device));
  return absl::OkStatus();
}

absl::Status WorkerRun::DoConnect(const v1::ConnectPeers& message) {
  const absl::Time deadline = SteadyNow() + kConnectDeadline;
  std::vector<Device*> devices;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& device : devices_) devices.push_back(device.get());
  }
  std::vector<Transport::Peer> addresses;
  for (const v1::DeviceAddress& address : message.addresses())
    addresses.push_back({address.device(), address.address()});
  // All devices at the same time: each waits for the others, also for those of this worker.
  std::vector<absl::Status> results(devices.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i]->transport == nullptr) continue;
    std::vector<Transport::Peer> peers = PeersToConnect(*devices[i]->transport, devices[i]->peers,
                                                        devices[i]->neighbours, addresses);
    threads.emplace_back([&results, i, device = devices[i], peers = std::move(peers), deadline] {
      results[i] = device->transport->Connect(peers, deadline);
      if (results[i].ok())
        results[i] = device->transport->OpenCollectives(device->collectives, deadline);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!results[i].ok()) return Annotate(results[i], absl::StrCat("device ", devices[i]->name));
    if (devices[i]->transport == nullptr) continue;
    ASSIGN_OR_RETURN(const std::string way,
                     MemoryWayTaken(*devices[i]->transport, devices[i]->offered));
    if (way.empty()) continue;
    Log(LogLevel::kInfo, "a GPU's memory travels " + way,
        {{"job", job()}, {"generation", generation()}, {"device", devices[i]->name}});
  }
  checkpoints_.DropUnfinished(message.unwritten_step());
  // The planner starts a job when all are connected: no accelerator computes while another still
  // opens a communicator, which may wait for everything that runs on its machine.
  v1::ConnectRequest connected;
  connected.mutable_connected()->set_job(job());
  connected.mutable_connected()->set_generation(generation());
  Report(std::move(connected), /*remember=*/true);
  return absl::OkStatus();
}

absl::StatusOr<std::string> WorkerRun::RunDevice(Device& device) {
  RETURN_IF_ERROR(device.runner->Run());
  RETURN_IF_ERROR(checkpoints_.CheckOwned());
  // A generation that was about to end may have removed it, since it was empty.
  RETURN_IF_ERROR(MakeDirectories(ShardDirectory()));
  ASSIGN_OR_RETURN(std::string shard, device.runner->WriteShard(ShardDirectory()));
  {
    absl::MutexLock lock(&mutex_);
    ++trained_;
  }
  RETURN_IF_ERROR(Annotate(device.runner->Evaluate(),
                           absl::StrCat("training is done, its shards are in ", ShardDirectory())));
  return shard;
}

absl::Status WorkerRun::DoRun() {
  std::vector<Device*> devices;
  {
    absl::MutexLock lock(&mutex_);
    last_report_.reset();
    for (const auto& device : devices_) devices.push_back(device.get());
  }
  std::vector<absl::StatusOr<std::string>> shards(devices.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < devices.size(); ++i) {
    threads.emplace_back([this, &shards, i, device = devices[i]] {
      shards[i] = RunDevice(*device);
      if (!shards[i].ok())
        Fail(Annotate(shards[i].status(), absl::StrCat("device ", device->name)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& shard : shards) RETURN_IF_ERROR(shard.status());

  v1::ConnectRequest message;
  v1::Finished* finished = message.mutable_finished();
  finished->set_job(job());
  finished->set_generation(generation());
  for (const Device* device : devices) {
    if (device->runner->stopped_after() > 0)
      finished->set_stopped_after_step(device->runner->stopped_after());
  }
  for (const auto& shard : shards) {
    if (!shard->empty()) finished->add_shards(*shard);
  }
  {
    absl::MutexLock lock(&mutex_);
    if (!steps_.empty()) report_(StepsSoFar());
    finished->set_evaluated_samples(evaluation_.loss_samples);
    finished->set_evaluation_loss(evaluation_.loss);
    finished->set_predicted_samples(evaluation_.predicted);
    finished->set_correct_samples(evaluation_.correct);
  }
  Report(std::move(message), /*remember=*/true);
  return absl::OkStatus();
}

absl::Status WorkerRun::DoMerge(const v1::Merge& message) {
  RETURN_IF_ERROR(CheckPaths(places_.roots, message));
  checkpoints_.AwaitCompleted();  // Done with this run, nothing of it may be left undone.
  RETURN_IF_ERROR(checkpoints_.CheckOwned());
  checkpoints_.DropUnfinished(/*kept=*/0);  // All devices have saved; the model needs room.
  const std::vector<std::string> shards(message.shards().begin(), message.shards().end());
  ASSIGN_OR_RETURN(
      const RunWeights original,
      RunWeights::BesideShards(places_.artifacts, prepare_.spec().weights_path(), *graph_,
                               *program_, shards, [this] { return IsAborted(); }));
  RETURN_IF_ERROR(
      original.Named(MergeShards(*graph_, shards, original.path(), message.checkpoint_path())));
  std::error_code ignored;  // The checkpoint is whole; what is left over does no harm.
  for (const std::string& shard : shards) std::filesystem::remove(shard, ignored);
  std::filesystem::remove(ShardDirectory(), ignored);  // Unless it holds files of others.
  v1::ConnectRequest merged;
  merged.mutable_merged()->set_job(job());
  merged.mutable_merged()->set_generation(generation());
  merged.mutable_merged()->set_checkpoint_path(message.checkpoint_path());
  Report(std::move(merged), /*remember=*/true);
  return absl::OkStatus();
}

std::string WorkerRun::ShardDirectory() const {
  return stagewright::ShardDirectory(prepare_.spec().output_path(), RunOf(prepare_), generation());
}

void WorkerRun::RemoveShards() {
  absl::MutexLock lock(&mutex_);
  std::error_code ignored;  // What is left over does no harm.
  if (trained_ < devices_.size()) {
    for (const auto& device : devices_)
      std::filesystem::remove(ShardPath(ShardDirectory(), device->id), ignored);
  }
  // Other workers may have shards in it; then this does nothing.
  std::filesystem::remove(ShardDirectory(), ignored);
}

void WorkerRun::OnStep(const Device& device, StepReport report) {
  if (metrics_ != nullptr) {
    metrics_->ObserveStep(job(), *program_, report);
    metrics_->SetMeasuredMemory(job(), device.name, report.memory);
  }
  v1::ConnectRequest message;
  v1::Progress* progress = message.mutable_progress();
  progress->set_job(job());
  progress->set_generation(generation());
  progress->set_step(report.step + 1);
  v1::DeviceProgress* own = progress->add_devices();
  own->set_device(device.id.value());
  own->set_loss(report.loss);
  own->set_step_ns((report.end - report.start).count());
  own->set_skipped(report.skipped);
  own->set_peak_memory_bytes(report.memory.peak.count());
  own->set_memory_in_use_bytes(report.memory.in_use.count());
  own->set_memory_reserved_bytes(report.memory.reserved.count());
  own->set_allocations(report.memory.allocations);
  own->set_loss_scale(report.loss_scale);
  if (report.evaluation.has_value()) {
    v1::EvaluationResult* evaluation = own->mutable_evaluation();
    evaluation->set_loss(report.evaluation->loss);
    evaluation->set_predicted_samples(report.evaluation->predicted);
    evaluation->set_correct_samples(report.evaluation->correct);
  }
  own->set_learning_rate(training_.optimizer.learning_rate *
                         LearningRateFactor(training_.optimizer.schedule, report.step));
  Note(*progress);
  traces_.Add(report, first_step_, device.id, *progress);
  Report(std::move(message), /*remember=*/false);
}

void WorkerRun::Note(const v1::Progress& progress) {
  absl::MutexLock lock(&mutex_);
  for (const v1::DeviceProgress& device : progress.devices()) {
    v1::JobStep step;
    step.set_step(progress.step());
    step.set_loss(device.loss());
    step.set_learning_rate(device.learning_rate());
    step.set_step_ns(device.step_ns());
    step.set_skipped(device.skipped());
    steps_[device.device()].Add(step);
  }
}

v1::ConnectRequest WorkerRun::StepsSoFar() const {
  v1::ConnectRequest message;
  v1::StepsSoFar* steps = message.mutable_steps_so_far();
  steps->set_job(job());
  steps->set_generation(generation());
  for (const auto& [device, history] : steps_) {
    v1::DeviceSteps* own = steps->add_devices();
    own->set_device(device);
    *own->mutable_steps() = history.ToProto().steps();
    own->set_stride(history.stride());
  }
  return message;
}

void WorkerRun::OnEvaluation(const EvaluationReport& report) {
  absl::MutexLock lock(&mutex_);
  evaluation_.loss += report.loss;
  evaluation_.loss_samples += report.loss_samples;
  evaluation_.correct += report.correct;
  evaluation_.predicted += report.predicted;
}

absl::Status WorkerRun::Fault() const {
  for (const std::string& name : prepare_.device_names()) {
    const std::optional<OfferedDevice> device = find_device_(name);
    if (device.has_value()) RETURN_IF_ERROR(Annotate(FaultOf(device->torch_device), name));
  }
  return absl::OkStatus();
}

void WorkerRun::Fail(const absl::Status& cause) {
  const absl::Status fault = Fault();
  bool echo = false;
  {
    absl::MutexLock lock(&mutex_);
    echo = failed_ || !aborted_.ok();
    failed_ = true;
  }
  // The first failure is the cause; those after it are its echo, but may be the first to show a
  // device's fault.
  if (echo) {
    if (!fault.ok() && on_fault_ != nullptr) on_fault_(fault);
    return;
  }
  // The job may go on elsewhere, as after the loss of a worker, which this is.
  const absl::Status status =
      fault.ok() ? cause
                 : absl::UnavailableError(absl::StrCat(cause.message(), " (", fault.message(),
                                                       ", which stays: the worker ends)"));
  v1::ConnectRequest message;
  message.mutable_failed()->set_job(job());
  message.mutable_failed()->set_generation(generation());
  message.mutable_failed()->set_code(static_cast<int32_t>(status.code()));
  message.mutable_failed()->set_message(std::string(status.message()));
  for (const int device : UnreachedOf(status))
    message.mutable_failed()->add_unreached_devices(device);
  message.mutable_failed()->set_storage(IsOfStorage(status));
  Log(LogLevel::kError, "job failed",
      {{"job", job()}, {"generation", generation()}, {"why", status.message()}});
  Report(std::move(message), /*remember=*/true);
  Abort(std::string(status.message()));
  // Now: the thread of another device may never come back from its call.
  if (!fault.ok() && on_fault_ != nullptr) on_fault_(fault);
}

void WorkerRun::Report(v1::ConnectRequest message, bool remember) {
  absl::MutexLock lock(&mutex_);
  if (remember) last_report_ = message;
  report_(std::move(message));
}

}  // namespace stagewright
