#include "worker_daemon/daemon/daemon.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "common/artifacts/store/artifact_store.h"
#include "common/channel/address.h"
#include "common/log/log.h"
#include "common/wire/limits.h"
#include "common/wire/worker_name.h"
#include "worker_daemon/daemon/devices.h"
#include "worker_daemon/daemon/ending_runs.h"
#include "worker_daemon/daemon/gpu_machine.h"
#include "worker_daemon/daemon/graphs/named_graphs.h"
#include "worker_daemon/daemon/measuring/link_probe_run.h"
#include "worker_daemon/daemon/measuring/profile_run.h"
#include "worker_daemon/daemon/metrics.h"
#include "worker_daemon/daemon/places/own_directories.h"
#include "worker_daemon/daemon/places/path_checks.h"
#include "worker_daemon/daemon/planner_link.h"
#include "worker_daemon/daemon/worker_run.h"
#include "worker_daemon/device/device_fault.h"
#include "worker_daemon/executor/device_runner.h"
#include "worker_daemon/profiler/operator_profiler.h"

namespace stagewright {
namespace {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "worker";
}

// Another one than any process of the name had before, as good as surely; positive.
int64_t FreshProcess() {
  std::random_device random;
  return std::uniform_int_distribution<int64_t>(1)(random);
}

// Says in the log what keeps jobs from these for now.
absl::Status Look(const std::vector<OwnDirectory>& directories) {
  ASSIGN_OR_RETURN(const std::vector<std::string> lines, LookAt(directories));
  for (const std::string& line : lines) Log(LogLevel::kWarning, line);
  return absl::OkStatus();
}

class RunningDaemon : public Daemon {
 public:
  RunningDaemon(DaemonOptions options, Artifacts artifacts, std::optional<Offer> offer)
      : options_(std::move(options)), artifacts_(std::move(artifacts)) {
    if (offer.has_value()) offer_ = *std::move(offer);
    if (options_.name.empty()) options_.name = HostName();
    if (options_.host_address.empty()) options_.host_address = HostName();
  }

  ~RunningDaemon() override {
    Stop();
    std::map<std::string, std::unique_ptr<ProfileRun>> last;
    absl::MutexLock lock(&mutex_);
    last.swap(profiles_);  // They may report before they end, which takes the lock.
  }

  void Stop() override {
    link_.reset();  // No message comes after this.
    EndProbe();
    absl::MutexLock lock(&mutex_);
    for (auto& [job, run] : runs_) EndLater(std::move(run));
    runs_.clear();
    StopProfiles();
  }

  void BeginToLeave(const std::string& reason) override {
    absl::MutexLock lock(&mutex_);
    availability_ = v1::WORKER_AVAILABILITY_DRAINING;
    leave_.mutable_leave()->set_reason(reason);
    if (connected_) outbox_.Push(leave_);
  }

  absl::Status Fault() const override {
    absl::MutexLock lock(&mutex_);
    return fault_;
  }

  bool MayLeave() const override {
    absl::MutexLock lock(&mutex_);
    return may_leave_ || (!connected_ && runs_.empty());
  }

  std::string Ending() const override {
    return absl::StrJoin(ending_.List(), ", ", [](std::string* out, const v1::RunningJob& run) {
      absl::StrAppend(out, run.job());
    });
  }

  absl::Status Init() {
    if (!options_.work_dir.empty() && chdir(options_.work_dir.c_str()) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("work-dir ", options_.work_dir, ": ", std::strerror(errno)));
    }
    RETURN_IF_ERROR(Look({{"--data-root", options_.roots.data},
                          {"--output-root", options_.roots.output, /*written=*/true}}));
    SetIntraOpThreads(options_.threads_per_device);
    if (offer_.devices.empty()) {
      ASSIGN_OR_RETURN(offer_, OfferDevices(options_.devices));
    }
    // After the devices were measured, which shows the clocks that they come to.
    gpu_machine_ = DescribeGpuMachine(/*needed=*/!OffersCpus());
    for (OfferedDevice& device : offer_.devices) {
      device.memory_limit = options_.memory_limit;
      device.memory_way = options_.device_memory_way;
    }
    if (!options_.metrics_listen.empty()) {
      ASSIGN_OR_RETURN(metrics_, WorkerMetrics::Serve(options_.metrics_listen));
    }
    PlannerLink::Callbacks callbacks;
    callbacks.registration = [this] { return Registration(); };
    callbacks.on_message = [this](const v1::ConnectResponse& message) { OnMessage(message); };
    callbacks.on_lacking_steps = [this](const std::string& job) { RepeatSteps(job); };
    callbacks.on_connected = [this](bool connected) { OnConnected(connected); };
    ASSIGN_OR_RETURN(link_, PlannerLink::Open(options_.planner, options_.security, &outbox_,
                                              std::move(callbacks)));
    return absl::OkStatus();
  }

  std::string metrics_address() const override {
    return metrics_ == nullptr ? "" : metrics_->address();
  }

 private:
  bool OffersCpus() const { return offer_.devices.front().torch_device == "cpu"; }

  v1::Register Registration() {
    v1::Register message;
    message.set_worker(options_.name);
    message.set_version(STAGEWRIGHT_VERSION);
    message.set_host_address(options_.host_address);
    message.set_host_cores(static_cast<int32_t>(std::thread::hardware_concurrency()));
    const bool on_cpu = OffersCpus();
    message.set_threads_per_device(on_cpu ? options_.threads_per_device : 0);
    message.set_software(ProfiledSoftware(message.threads_per_device()));
    // Devices of a named kind are not measured, and neither is what is between them.
    message.set_probes_links(on_cpu && options_.devices.kind.empty());
    message.set_proves_key(true);
    message.set_keeps_graphs(true);
    message.set_process(process_);
    if (gpu_machine_.has_value()) *message.mutable_gpu_machine() = *gpu_machine_;
    for (const v1::DeviceKind& kind : offer_.kinds) *message.add_kinds() = kind;
    for (size_t i = 0; i < offer_.devices.size(); ++i) {
      v1::Device* device = message.add_devices();
      device->set_name(offer_.devices[i].name);
      device->set_kind(offer_.kind_of[i]);
      device->set_memory_bytes(offer_.devices[i].memory.count());
    }
    absl::MutexLock lock(&mutex_);
    message.set_availability(availability_);
    message.set_leaving(leave_.has_leave());
    for (const auto& [job, run] : runs_) {
      v1::RunningJob* running = message.add_running();
      running->set_job(job);
      running->set_generation(run->generation());
      running->set_flush_after(run->flush_after());
      for (const std::string& device : run->device_names()) running->add_device_names(device);
    }
    for (v1::RunningJob& run : ending_.List()) *message.add_running() = std::move(run);
    return message;
  }

  void OnConnected(bool connected) {
    if (metrics_ != nullptr) metrics_->SetConnected(connected);
    if (!connected) EndProbe();
    absl::MutexLock lock(&mutex_);
    connected_ = connected;
    if (!connected) {  // The planner takes what was being measured, or not begun, for lost.
      graphs_.DropAll();
      StopProfiles();
      return;
    }
    for (const auto& [job, run] : runs_) run->RepeatLastReport();
    if (leave_.has_leave()) outbox_.Push(leave_);
  }

  void RepeatSteps(const std::string& job) {
    absl::MutexLock lock(&mutex_);
    if (const auto run = runs_.find(job); run != runs_.end()) run->second->RepeatSteps();
  }

  std::optional<OfferedDevice> FindDevice(const std::string& name) const {
    for (const OfferedDevice& device : offer_.devices) {
      if (device.name == name) return device;
    }
    return std::nullopt;
  }

  // The run that a message of the planner is for, or null: it is over here.
  WorkerRun* Find(const std::string& job, int64_t generation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto it = runs_.find(job);
    return it == runs_.end() || it->second->generation() != generation ? nullptr : it->second.get();
  }

  void OnMessage(const v1::ConnectResponse& message) {
    if (message.has_prepare()) return Prepare(message.prepare());
    if (message.has_profile_operators()) return Profile(message.profile_operators());
    if (message.has_stop_profiling()) return StopProfiling(message.stop_profiling().request());
    if (message.has_probe_links()) return ProbeLinks(message.probe_links());
    if (message.has_probe_peers()) {
      if (probe_ != nullptr && probe_->probe() == message.probe_peers().probe())
        probe_->Connect(message.probe_peers());
      return;
    }
    if (message.has_end_probe()) {
      if (probe_ != nullptr && probe_->probe() == message.end_probe().probe()) EndProbe();
      return;
    }
    absl::MutexLock lock(&mutex_);
    Command(message);
  }

  // A probe would disturb a job, and be disturbed.
  void ProbeLinks(const v1::ProbeLinks& message) {
    EndProbe();
    std::vector<OfferedDevice> devices;
    std::string error;
    {
      absl::MutexLock lock(&mutex_);
      if (!runs_.empty() || !ending_.empty()) error = "the worker has a job";
    }
    const bool interrupted = !error.empty();
    for (const v1::ProbedDevice& device : message.devices()) {
      const std::optional<OfferedDevice> found = FindDevice(device.name());
      if (found.has_value()) devices.push_back(*found);
      if (!found.has_value()) error = absl::StrCat("there is no device ", device.name());
    }
    const auto report = [this](v1::ConnectRequest answer) { outbox_.Push(std::move(answer)); };
    if (error.empty()) {
      probe_ =
          std::make_unique<LinkProbeRun>(message, std::move(devices), report, std::move(probe_));
      return;
    }
    v1::ConnectRequest refusal;
    refusal.mutable_links_probed()->set_probe(message.probe());
    refusal.mutable_links_probed()->set_error(error);
    refusal.mutable_links_probed()->set_interrupted(interrupted);
    report(std::move(refusal));
  }

  // Without waiting: the thread that reads the stream is no place for that.
  void EndProbe() {
    if (probe_ != nullptr) probe_->End();
  }

  // The planner sends it when the job's older run has ended on the devices: both would not fit into
  // memory. A Prepare that is not newer than the run comes late and is ignored.
  void Prepare(v1::Prepare message) {
    if (probe_ != nullptr) probe_->Interrupt("the worker got a job");
    absl::MutexLock lock(&mutex_);
    auto it = runs_.find(message.job());
    if (it != runs_.end() && it->second->generation() >= message.generation()) return;
    if (graphs_.Waiting(message.job()) >= message.generation()) return;
    EndLater(Remove(message.job(), message.generation()));
    if (std::optional<v1::Prepare> whole = graphs_.Complete(std::move(message)))
      Begin(*std::move(whole));
  }

  void Begin(v1::Prepare message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Log(LogLevel::kInfo, "job is prepared",
        {{"job", message.job()},
         {"generation", message.generation()},
         {"devices", message.devices_size()}});
    const std::string job = message.job();
    runs_[job] = std::make_unique<WorkerRun>(
        std::move(message), [this](const std::string& name) { return FindDevice(name); },
        [this](v1::ConnectRequest report) { outbox_.Push(std::move(report)); }, metrics_.get(),
        Places{options_.roots, artifacts_}, [this](const absl::Status& fault) { OnFault(fault); });
  }

  // The planner is told after what failed, so that what failed is known once it lets the worker go.
  void OnFault(const absl::Status& fault) {
    {
      absl::MutexLock lock(&mutex_);
      if (!fault_.ok()) return;
      fault_ = fault;
    }
    Log(LogLevel::kError, absl::StrCat("the process can use a device no more and ends, to be "
                                       "started anew: ",
                                       fault.message()));
    BeginToLeave(std::string(fault.message()));
    if (options_.on_fault != nullptr) options_.on_fault();
  }

  // On a device that no job has.
  void Profile(const v1::ProfileOperators& message) {
    const std::optional<OfferedDevice> device = FindDevice(message.device_name());
    const auto report = [this, device](v1::ConnectRequest answer) {
      const v1::OperatorsProfiled& profiled = answer.operators_profiled();
      const bool failed = profiled.code() != 0 || profiled.unmeasured_size() > 0;
      outbox_.Push(std::move(answer));
      if (!failed || !device.has_value()) return;
      if (const absl::Status fault = FaultOf(device->torch_device); !fault.ok()) OnFault(fault);
    };
    if (!device.has_value()) {
      v1::ConnectRequest answer;
      answer.mutable_operators_profiled()->set_request(message.request());
      answer.mutable_operators_profiled()->set_code(
          static_cast<int32_t>(absl::StatusCode::kNotFound));
      answer.mutable_operators_profiled()->set_message(
          absl::StrCat("there is no device \"", message.device_name(), "\""));
      return report(std::move(answer));
    }
    if (probe_ != nullptr) probe_->Interrupt("operators are being measured");
    std::unique_ptr<ProfileRun> older;
    {
      absl::MutexLock lock(&mutex_);
      older = std::move(profiles_[message.device_name()]);
    }
    // It has ended or was stopped, since the planner takes the device for free.
    const int threads = device->torch_device == "cpu" ? options_.threads_per_device : 0;
    auto run = std::make_unique<ProfileRun>(message, *device, threads, report, std::move(older));
    absl::MutexLock lock(&mutex_);
    profiles_[message.device_name()] = std::move(run);
  }

  void StopProfiles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const auto& [device, run] : profiles_) {
      if (run != nullptr) run->Stop();
    }
  }

  void StopProfiling(int64_t request) {
    absl::MutexLock lock(&mutex_);
    for (const auto& [device, run] : profiles_) {
      if (run != nullptr && run->request() == request) run->Stop();
    }
  }

  // Nothing waits for the run to end.
  void EndLater(std::unique_ptr<WorkerRun> run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (run == nullptr) return;
    run->Abort("the job is over on this worker");
    const bool on_accelerator = !OffersCpus();
    ending_.Add(std::move(run), on_accelerator);
  }

  void OnEnded(const std::string& job, int64_t generation) {
    outbox_.Forget(job, generation);
    v1::ConnectRequest message;
    message.mutable_run_ended()->set_job(job);
    message.mutable_run_ended()->set_generation(generation);
    outbox_.Push(std::move(message));
  }

  // Takes out the run that the message ends; says at once if there is none.
  std::unique_ptr<WorkerRun> TakeOver(const std::string& job, int64_t generation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    graphs_.Drop(job, generation);
    std::unique_ptr<WorkerRun> over = Remove(job, generation);
    if (over == nullptr && !ending_.Has(job, generation)) OnEnded(job, generation);
    return over;
  }

  // Carries out a message to the run it is for.
  void Command(const v1::ConnectResponse& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    switch (message.message_case()) {
      case v1::ConnectResponse::kConnectPeers:
        if (WorkerRun* run =
                Find(message.connect_peers().job(), message.connect_peers().generation())) {
          run->Connect(message.connect_peers());
        }
        break;
      case v1::ConnectResponse::kStart:
        if (WorkerRun* run = Find(message.start().job(), message.start().generation()))
          run->Start();
        break;
      case v1::ConnectResponse::kMerge:
        if (WorkerRun* run = Find(message.merge().job(), message.merge().generation()))
          run->Merge(message.merge());
        break;
      case v1::ConnectResponse::kCheckpointAfter:
        if (WorkerRun* run =
                Find(message.checkpoint_after().job(), message.checkpoint_after().generation())) {
          run->CheckpointAfter(message.checkpoint_after());
        }
        break;
      case v1::ConnectResponse::kGoOn:
        if (WorkerRun* run = Find(message.go_on().job(), message.go_on().generation())) run->GoOn();
        break;
      case v1::ConnectResponse::kTraceSteps:
        if (WorkerRun* run = Find(message.trace_steps().job(), message.trace_steps().generation()))
          run->TraceSteps(message.trace_steps());
        break;
      case v1::ConnectResponse::kWriteManifest:
        if (WorkerRun* run =
                Find(message.write_manifest().job(), message.write_manifest().generation())) {
          run->WriteManifest(message.write_manifest());
        }
        break;
      case v1::ConnectResponse::kAbort:
        if (auto over = TakeOver(message.abort().job(), message.abort().generation())) {
          Log(LogLevel::kWarning, "job ends here",
              {{"job", over->job()},
               {"generation", message.abort().generation()},
               {"why", message.abort().reason()}});
          over->Abort(message.abort().reason());
          EndLater(std::move(over));
        }
        break;
      case v1::ConnectResponse::kRelease:
        if (auto over = TakeOver(message.release().job(), message.release().generation())) {
          Log(LogLevel::kInfo, "job is done here",
              {{"job", over->job()}, {"generation", message.release().generation()}});
          EndLater(std::move(over));
        }
        break;
      case v1::ConnectResponse::kSetAvailability:
        // Once it is to end, nothing keeps it.
        if (!leave_.has_leave()) availability_ = message.set_availability().availability();
        break;
      case v1::ConnectResponse::kMayLeave:
        may_leave_ = leave_.has_leave();
        break;
      case v1::ConnectResponse::kNeededGraph:
        for (v1::Prepare& whole : graphs_.Take(message.needed_graph())) Begin(std::move(whole));
        break;
      case v1::ConnectResponse::kCheckPaths:
        path_checks_.Add(message.check_paths());
        break;
      case v1::ConnectResponse::kPrepare:
      case v1::ConnectResponse::kProbeLinks:
      case v1::ConnectResponse::kProbePeers:
      case v1::ConnectResponse::kEndProbe:
      case v1::ConnectResponse::kRegistered:
      case v1::ConnectResponse::kProfileOperators:
      case v1::ConnectResponse::kStopProfiling:
      case v1::ConnectResponse::MESSAGE_NOT_SET:
        break;
    }
  }

  // Takes out the job's run if it is of this generation or older.
  std::unique_ptr<WorkerRun> Remove(const std::string& job, int64_t generation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto it = runs_.find(job);
    if (it == runs_.end() || it->second->generation() > generation) return nullptr;
    std::unique_ptr<WorkerRun> run = std::move(it->second);
    runs_.erase(it);
    return run;
  }

  DaemonOptions options_;
  const Artifacts artifacts_;
  const int64_t process_ = FreshProcess();
  Offer offer_;
  std::optional<v1::GpuMachine> gpu_machine_;
  std::unique_ptr<WorkerMetrics> metrics_;
  Outbox outbox_;
  const LogTap log_tap_{[this](const LogLine& line) { outbox_.Tell(line); }};
  mutable absl::Mutex mutex_;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  v1::WorkerAvailability availability_ ABSL_GUARDED_BY(mutex_) = v1::WORKER_AVAILABILITY_OPEN;
  v1::ConnectRequest leave_ ABSL_GUARDED_BY(mutex_);  // Set once the worker is to end.
  bool may_leave_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status fault_ ABSL_GUARDED_BY(mutex_);
  EndingRuns ending_{
      // Goes before what runs that end report to.
      [this](const std::string& job, int64_t generation) { OnEnded(job, generation); },
      [this](const std::string& job, const std::string& devices) {
        OnFault(absl::DeadlineExceededError(absl::StrCat("a run of ", job, " on ", devices,
                                                         " has not ended for ",
                                                         absl::FormatDuration(kStuckAfter))));
      }};
  std::map<std::string, std::unique_ptr<WorkerRun>> runs_ ABSL_GUARDED_BY(mutex_);
  NamedGraphs graphs_ ABSL_GUARDED_BY(mutex_){
      [this](v1::ConnectRequest message) { outbox_.Push(std::move(message)); }};
  // By device: the last measurement, which may have ended.
  std::map<std::string, std::unique_ptr<ProfileRun>> profiles_ ABSL_GUARDED_BY(mutex_);
  PathChecks path_checks_{{options_.roots, artifacts_},
                          [this](v1::ConnectRequest answer) { outbox_.Push(std::move(answer)); }};
  std::unique_ptr<LinkProbeRun> probe_;  // Only the link's thread uses it.
  std::unique_ptr<PlannerLink> link_;
};

absl::StatusOr<std::unique_ptr<Daemon>> StartDaemon(const DaemonOptions& options,
                                                    std::optional<Offer> offer) {
  RETURN_IF_ERROR(CheckOptions(options));
  // Their paths begin where the worker is started, those of roots where it runs.
  const ArtifactOptions& artifacts_at = options.artifacts;
  if (!artifacts_at.store.empty()) {
    const bool folder = !IsBucket(artifacts_at.store);
    RETURN_IF_ERROR(
        Look({{"--artifacts", folder ? artifacts_at.store : ""},
              {"--artifact-cache", artifacts_at.cache, /*written=*/true, /*made=*/true}}));
  }
  ASSIGN_OR_RETURN(Artifacts artifacts, Artifacts::Open(options.artifacts));
  auto daemon = std::make_unique<RunningDaemon>(options, std::move(artifacts), std::move(offer));
  RETURN_IF_ERROR(daemon->Init());
  return std::unique_ptr<Daemon>(std::move(daemon));
}

}  // namespace

absl::Status CheckOptions(const DaemonOptions& options) {
  RETURN_IF_ERROR(CheckChannel("--planner", options.planner, options.security));
  v1::Register names;
  names.set_worker(options.name);
  names.set_host_address(options.host_address);
  RETURN_IF_ERROR(Annotate(CheckLimits(names), "--name, --host-address"));
  if (!options.name.empty()) RETURN_IF_ERROR(Annotate(CheckWorkerName(options.name), "--name"));
  RETURN_IF_ERROR(CheckDevices(options.devices));
  if (!options.metrics_listen.empty())
    RETURN_IF_ERROR(CheckAddress("--metrics-listen", options.metrics_listen));
  if (options.artifacts.store.empty()) return absl::OkStatus();
  return Annotate(OpenArtifactStore(options.artifacts.store).status(), "--artifacts");
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const DaemonOptions& options) {
  return StartDaemon(options, std::nullopt);
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const DaemonOptions& options, Offer offer) {
  return StartDaemon(options, std::move(offer));
}

}  // namespace stagewright
