#include "worker_daemon/daemon/daemon.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "common/log/log.h"
#include "worker_daemon/daemon/devices.h"
#include "worker_daemon/daemon/ending_runs.h"
#include "worker_daemon/daemon/measuring/link_probe_run.h"
#include "worker_daemon/daemon/measuring/profile_run.h"
#include "worker_daemon/daemon/metrics.h"
#include "worker_daemon/daemon/planner_link.h"
#include "worker_daemon/daemon/worker_run.h"
#include "worker_daemon/executor/device_runner.h"
#include "worker_daemon/profiler/operator_profiler.h"

namespace stagewright {
namespace {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "worker";
}

class RunningDaemon : public Daemon {
 public:
  explicit RunningDaemon(DaemonOptions options) : options_(std::move(options)) {
    if (options_.name.empty()) options_.name = HostName();
    if (options_.host_address.empty()) options_.host_address = HostName();
  }

  ~RunningDaemon() override {
    Stop();
    absl::MutexLock lock(&mutex_);
    profiles_.clear();
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
    SetIntraOpThreads(options_.threads_per_device);
    ASSIGN_OR_RETURN(offer_, OfferDevices(options_.devices, options_.memory_per_device));
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
    callbacks.on_connected = [this](bool connected) { OnConnected(connected); };
    ASSIGN_OR_RETURN(link_, PlannerLink::Open(options_.planner, options_.security, &outbox_,
                                              std::move(callbacks)));
    return absl::OkStatus();
  }

  std::string metrics_address() const override {
    return metrics_ == nullptr ? "" : metrics_->address();
  }

 private:
  v1::Register Registration() {
    v1::Register message;
    message.set_worker(options_.name);
    message.set_version(STAGEWRIGHT_VERSION);
    message.set_host_address(options_.host_address);
    message.set_host_cores(static_cast<int32_t>(std::thread::hardware_concurrency()));
    const bool on_cpu = offer_.devices.front().torch_device == "cpu";
    message.set_threads_per_device(on_cpu ? options_.threads_per_device : 0);
    message.set_software(ProfiledSoftware(message.threads_per_device()));
    message.set_probes_links(on_cpu);
    for (const v1::DeviceKind& kind : offer_.kinds) *message.add_kinds() = kind;
    for (size_t i = 0; i < offer_.devices.size(); ++i) {
      v1::Device* device = message.add_devices();
      device->set_name(offer_.devices[i].name);
      device->set_kind(offer_.kind_of[i]);
      device->set_memory_bytes(offer_.devices[i].memory.count());
    }
    absl::MutexLock lock(&mutex_);
    message.set_availability(availability_);
    for (const auto& [job, run] : runs_) {
      v1::RunningJob* running = message.add_running();
      running->set_job(job);
      running->set_generation(run->generation());
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
    if (!connected) {  // The planner takes what was being measured for lost.
      StopProfiles();
      return;
    }
    for (const auto& [job, run] : runs_) run->RepeatLastReport();
    if (leave_.has_leave()) outbox_.Push(leave_);
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
      probe_ = std::make_unique<LinkProbeRun>(message, std::move(devices), report);
      return;
    }
    v1::ConnectRequest refusal;
    refusal.mutable_links_probed()->set_probe(message.probe());
    refusal.mutable_links_probed()->set_error(error);
    refusal.mutable_links_probed()->set_interrupted(interrupted);
    report(std::move(refusal));
  }

  void EndProbe() { probe_.reset(); }

  // The planner sends it when the job's older run has ended on the devices: both would not fit into
  // memory. A Prepare that is not newer than the run comes late and is ignored.
  void Prepare(const v1::Prepare& message) {
    if (probe_ != nullptr) probe_->Interrupt("the worker got a job");
    absl::MutexLock lock(&mutex_);
    auto it = runs_.find(message.job());
    if (it != runs_.end() && it->second->generation() >= message.generation()) return;
    EndLater(Remove(message.job(), message.generation()));
    Log(LogLevel::kInfo, "job is prepared",
        {{"job", message.job()},
         {"generation", message.generation()},
         {"devices", message.devices_size()}});
    runs_[message.job()] = std::make_unique<WorkerRun>(
        message, [this](const std::string& name) { return FindDevice(name); },
        [this](v1::ConnectRequest report) { outbox_.Push(std::move(report)); }, metrics_.get(),
        options_.roots);
  }

  // On a device that no job has.
  void Profile(const v1::ProfileOperators& message) {
    const auto report = [this](v1::ConnectRequest answer) { outbox_.Push(std::move(answer)); };
    const std::optional<OfferedDevice> device = FindDevice(message.device_name());
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
    older.reset();  // It has ended or was stopped, since the planner takes the device for free.
    const int threads = device->torch_device == "cpu" ? options_.threads_per_device : 0;
    auto run = std::make_unique<ProfileRun>(message, *device, threads, report);
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
    ending_.Add(std::move(run));
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
  Offer offer_;
  std::unique_ptr<WorkerMetrics> metrics_;
  Outbox outbox_;
  EndingRuns ending_{
      [this](const std::string& job, int64_t generation) { OnEnded(job, generation); }};
  mutable absl::Mutex mutex_;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  v1::WorkerAvailability availability_ ABSL_GUARDED_BY(mutex_) = v1::WORKER_AVAILABILITY_OPEN;
  v1::ConnectRequest leave_ ABSL_GUARDED_BY(mutex_);  // Set once the worker is to end.
  bool may_leave_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::unique_ptr<WorkerRun>> runs_ ABSL_GUARDED_BY(mutex_);
  // By device: the last measurement, which may have ended.
  std::map<std::string, std::unique_ptr<ProfileRun>> profiles_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<LinkProbeRun> probe_;  // Only the link's thread uses it.
  std::unique_ptr<PlannerLink> link_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const DaemonOptions& options) {
  auto daemon = std::make_unique<RunningDaemon>(options);
  RETURN_IF_ERROR(daemon->Init());
  return std::unique_ptr<Daemon>(std::move(daemon));
}

}  // namespace stagewright
