#include "planner_service/registry/worker_registry.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/clock/steady_now.h"
#include "common/wire/topology_proto.h"
#include "common/wire/worker_name.h"

namespace stagewright {
namespace {

absl::Status CheckRegistration(const v1::Register& message) {
  RETURN_IF_ERROR(Annotate(CheckWorkerName(message.worker()), "register.worker"));
  const std::string where = absl::StrCat("worker \"", message.worker(), "\"");
  if (message.host_cores() < 0 || message.threads_per_device() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": host_cores and threads_per_device must not be negative"));
  }
  if (message.devices().empty())
    return absl::InvalidArgumentError(absl::StrCat(where, " has no devices"));
  std::set<std::string> names;
  for (const v1::Device& device : message.devices()) {
    const std::string which = absl::StrCat(where, " device \"", device.name(), "\"");
    if (device.name().empty() || !names.insert(device.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat(which, ": the name is empty or used twice"));
    }
    if (device.kind() < 0 || device.kind() >= message.kinds_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(which, ".kind: ", device.kind(), " does not exist"));
    }
    if (device.memory_bytes() <= 0) {
      return absl::InvalidArgumentError(absl::StrCat(which, ".memory_bytes must be positive"));
    }
  }
  for (const v1::Gpu& gpu : message.gpu_machine().gpus()) {
    for (const int32_t other : gpu.no_peer_access()) {
      if (other < 0 || other >= message.gpu_machine().gpus_size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            where, " GPU \"", gpu.name(), "\".no_peer_access: ", other, " does not exist"));
      }
    }
  }
  for (const v1::DeviceKind& kind : message.kinds())
    RETURN_IF_ERROR(CheckKind(FromProto(kind), absl::StrCat(where, " kind \"", kind.name(), "\"")));
  return absl::OkStatus();
}

v1::ConnectResponse AvailabilityMessage(v1::WorkerAvailability availability) {
  v1::ConnectResponse message;
  message.mutable_set_availability()->set_availability(availability);
  return message;
}

}  // namespace

absl::StatusOr<int64_t> WorkerRegistry::Register(const v1::Register& message, Sink sink,
                                                 absl::Time now) {
  RETURN_IF_ERROR(CheckRegistration(message));
  absl::MutexLock lock(&mutex_);
  if (workers_.contains(message.worker())) {
    return absl::AlreadyExistsError(
        absl::StrCat("a worker named \"", message.worker(), "\" is connected already"));
  }
  if (!workers_.empty()) {
    const v1::Register& other = workers_.begin()->second.registration;
    if (other.version() != message.version()) {
      return absl::FailedPreconditionError(
          absl::StrCat("worker \"", message.worker(), "\" is of version \"", message.version(),
                       "\", but the connected worker \"", other.worker(), "\" is of version \"",
                       other.version(), "\": all workers must be of one version"));
    }
  }
  Worker& worker = workers_[message.worker()];
  worker.registration = message;
  worker.held.resize(static_cast<size_t>(message.devices_size()));
  if (message.availability() != v1::WORKER_AVAILABILITY_UNSPECIFIED)
    worker.availability = message.availability();
  worker.leaving = message.leaving();
  worker.sink = std::move(sink);
  TellAgain(worker);
  worker.session = next_session_++;
  worker.last_heard = now;
  return worker.session;
}

void WorkerRegistry::TellAgain(Worker& worker) {
  const v1::Register& message = worker.registration;
  const auto told = told_.find(message.worker());
  if (told == told_.end()) return;
  if (told->second.process != message.process() || message.process() == 0) {
    told_.erase(told);
  } else if (!worker.leaving && worker.availability != told->second.availability) {
    worker.availability = told->second.availability;
    worker.sink(AvailabilityMessage(worker.availability));
  }
}

bool WorkerRegistry::Unregister(const std::string& worker, int64_t session) {
  absl::MutexLock lock(&mutex_);
  auto it = workers_.find(worker);
  if (it == workers_.end() || it->second.session != session) return false;
  workers_.erase(it);
  return true;
}

bool WorkerRegistry::UnregisterSilent(const std::string& worker, int64_t session,
                                      absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  const auto it = workers_.find(worker);
  if (it == workers_.end() || it->second.session != session || it->second.last_heard >= deadline)
    return false;
  workers_.erase(it);
  return true;
}

bool WorkerRegistry::Heartbeat(const std::string& worker, int64_t session, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  auto it = workers_.find(worker);
  if (it == workers_.end() || it->second.session != session) return false;
  it->second.last_heard = now;
  return true;
}

std::vector<std::pair<std::string, int64_t>> WorkerRegistry::Silent(absl::Time deadline) const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::pair<std::string, int64_t>> silent;
  for (const auto& [name, worker] : workers_) {
    if (worker.last_heard < deadline) silent.emplace_back(name, worker.session);
  }
  return silent;
}

void WorkerRegistry::Forgive(absl::Duration stood_still, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  for (auto& [name, worker] : workers_) {
    if (worker.last_heard < now) worker.last_heard = std::min(worker.last_heard + stood_still, now);
    for (Held& held : worker.held) held.ends_by += stood_still;
  }
}

std::vector<RegisteredDevice> WorkerRegistry::Devices(bool free_only) const {
  absl::MutexLock lock(&mutex_);
  std::vector<RegisteredDevice> devices;
  for (const auto& [name, worker] : workers_) {
    for (int i = 0; i < worker.registration.devices_size(); ++i) {
      const v1::Device& device = worker.registration.devices(i);
      const Held& held = worker.held[static_cast<size_t>(i)];
      const bool ending = held.job.empty() && !held.ending.empty();
      const std::string& job = ending ? held.ending : held.job;
      const bool available = Available(worker, name + "/" + device.name());
      if (free_only && !(job.empty() && available)) continue;
      devices.push_back({name, i, device, worker.registration.kinds(device.kind()),
                         worker.registration.host_address(), worker.registration.host_cores(),
                         worker.registration.threads_per_device(),
                         worker.registration.probes_links(), worker.registration.proves_key(),
                         worker.registration.software(), job, ending, ending && held.stuck,
                         available, worker.availability});
    }
  }
  return devices;
}

bool WorkerRegistry::Available(const Worker& worker, const std::string& device) const {
  return worker.availability == v1::WORKER_AVAILABILITY_OPEN && quarantine_.Find(device) == nullptr;
}

std::optional<WorkerRegistry::Found> WorkerRegistry::Find(const std::string& device) {
  const size_t slash = device.find('/');
  const auto it = workers_.find(device.substr(0, slash));
  if (it == workers_.end() || slash == std::string::npos) return std::nullopt;
  Worker& worker = it->second;
  for (int i = 0; i < worker.registration.devices_size(); ++i) {
    if (worker.registration.devices(i).name() == device.substr(slash + 1))
      return Found{&worker, &worker.held[static_cast<size_t>(i)]};
  }
  return std::nullopt;
}

absl::Status WorkerRegistry::Give(const std::string& job, const std::vector<std::string>& devices,
                                  bool must_be_available) {
  absl::MutexLock lock(&mutex_);
  std::vector<Held*> all;
  for (const std::string& device : devices) {
    const std::optional<Found> found = Find(device);
    const auto refuse = [&](const auto&... why) {
      return absl::FailedPreconditionError(absl::StrCat("device ", device, " is ", why...));
    };
    if (!found.has_value()) return refuse("not connected");
    const Held& held = *found->held;
    if (!held.job.empty() && held.job != job) return refuse("held by ", held.job);
    if (!held.ending.empty()) return refuse("not free before ", held.ending, " has ended there");
    if (must_be_available && held.job.empty() && !Available(*found->worker, device)) {
      return quarantine_.Find(device) != nullptr ? refuse("in quarantine")
                                                 : refuse("of a worker that takes no new jobs");
    }
    all.push_back(found->held);
  }
  for (Held* held : all) held->job = job;
  return absl::OkStatus();
}

absl::Status WorkerRegistry::Allocate(const std::string& job,
                                      const std::vector<std::string>& devices) {
  return Give(job, devices, /*must_be_available=*/true);
}

absl::Status WorkerRegistry::Regain(const std::string& job,
                                    const std::vector<std::string>& devices) {
  return Give(job, devices, /*must_be_available=*/false);
}

void WorkerRegistry::Release(const std::string& job, const std::vector<std::string>& keep) {
  EndRun(job, /*generation=*/0, /*used=*/{}, keep);
}

void WorkerRegistry::EndRun(const std::string& job, int64_t generation,
                            const std::vector<std::string>& used,
                            const std::vector<std::string>& keep) {
  absl::MutexLock lock(&mutex_);
  for (const std::string& device : used) {
    const std::optional<Found> found = Find(device);
    if (!found.has_value() || found->held->job != job) continue;
    *found->held = {job, job, generation};
  }
  for (auto& [name, worker] : workers_) {
    for (size_t i = 0; i < worker.held.size(); ++i) {
      const std::string device =
          name + "/" + worker.registration.devices(static_cast<int>(i)).name();
      const bool kept = std::find(keep.begin(), keep.end(), device) != keep.end();
      if (worker.held[i].job == job && !kept) worker.held[i].job.clear();
    }
  }
}

void WorkerRegistry::NoteEnding(const std::string& worker, const v1::RunningJob& run) {
  absl::MutexLock lock(&mutex_);
  for (const std::string& device : run.device_names()) {
    const std::optional<Found> found = Find(absl::StrCat(worker, "/", device));
    if (!found.has_value()) continue;
    *found->held = {found->held->job, run.job(), run.generation()};
  }
}

void WorkerRegistry::Ended(const std::string& worker, const std::string& job, int64_t generation) {
  absl::MutexLock lock(&mutex_);
  const auto it = workers_.find(worker);
  if (it == workers_.end()) return;
  for (Held& held : it->second.held) {
    if (held.ending == job && held.generation <= generation) held.ending.clear();
  }
}

std::vector<std::string> WorkerRegistry::Ending(const std::string& job) const {
  const std::map<std::string, std::vector<std::string>> all = Ending();
  const auto found = all.find(job);
  return found == all.end() ? std::vector<std::string>() : found->second;
}

std::map<std::string, std::vector<std::string>> WorkerRegistry::Ending() const {
  absl::MutexLock lock(&mutex_);
  std::map<std::string, std::vector<std::string>> workers;
  for (const auto& [name, worker] : workers_) {
    for (const Held& held : worker.held) {
      if (held.ending.empty()) continue;
      std::vector<std::string>& names = workers[held.ending];
      if (names.empty() || names.back() != name) names.push_back(name);
    }
  }
  return workers;
}

absl::StatusOr<v1::Worker> WorkerRegistry::SetAvailability(const std::string& name,
                                                           v1::WorkerAvailability availability) {
  Sink sink;
  v1::Worker told;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = workers_.find(name);
    if (it == workers_.end())
      return absl::NotFoundError(absl::StrCat("no worker \"", name, "\" is connected"));
    Worker& worker = it->second;
    if ((worker.leaving || worker.left) && availability != v1::WORKER_AVAILABILITY_DRAINING) {
      return absl::FailedPreconditionError(
          absl::StrCat("worker \"", name, "\" is leaving: its process is told to end"));
    }
    worker.availability = availability;
    told_[name] = {worker.registration.process(), availability};
    if (availability == v1::WORKER_AVAILABILITY_OPEN) {
      for (const v1::Device& device : worker.registration.devices())
        quarantine_.Forgive(name + "/" + device.name());
    }
    sink = worker.sink;
    told = Describe(worker);
  }
  sink(AvailabilityMessage(availability));
  return told;
}

void WorkerRegistry::NoteLeaving(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  const auto it = workers_.find(name);
  if (it == workers_.end()) return;
  it->second.availability = v1::WORKER_AVAILABILITY_DRAINING;
  it->second.leaving = true;
}

bool WorkerRegistry::Draining(const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  const auto it = workers_.find(name);
  return it != workers_.end() && it->second.availability == v1::WORKER_AVAILABILITY_DRAINING;
}

std::vector<std::string> WorkerRegistry::TakeIdleLeavers() {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> idle;
  for (auto& [name, worker] : workers_) {
    const bool busy = std::any_of(worker.held.begin(), worker.held.end(), [](const Held& held) {
      return !held.job.empty() || !held.ending.empty();
    });
    if (!worker.leaving || busy) continue;
    worker.leaving = false;
    worker.left = true;
    idle.push_back(name);
  }
  return idle;
}

absl::Time WorkerRegistry::NoteFailure(const std::string& device, const std::string& why,
                                       absl::Time now, int enough) {
  absl::MutexLock lock(&mutex_);
  quarantine_.NoteFailure(device, why, now, enough);
  const Quarantine::Entry* const kept = quarantine_.Find(device);
  return kept == nullptr ? absl::InfinitePast() : kept->until;
}

void WorkerRegistry::Tick(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  quarantine_.Expire(now);
  for (auto& [name, worker] : workers_) {
    for (Held& held : worker.held) {
      if (held.ending.empty()) continue;
      if (held.ends_by == absl::InfiniteFuture()) held.ends_by = now + kRunsEndWithin;
      held.stuck = now >= held.ends_by;
    }
  }
}

bool WorkerRegistry::Send(const std::string& worker, const v1::ConnectResponse& message) const {
  Sink sink;
  {
    absl::MutexLock lock(&mutex_);
    auto it = workers_.find(worker);
    if (it == workers_.end()) return false;
    sink = it->second.sink;
  }
  return sink(message);
}

LinkTable WorkerRegistry::Links() const {
  absl::MutexLock lock(&mutex_);
  return links_;
}

void WorkerRegistry::SetLinks(LinkTable links) {
  absl::MutexLock lock(&mutex_);
  links_ = std::move(links);
}

bool WorkerRegistry::Connected(const std::string& worker) const {
  absl::MutexLock lock(&mutex_);
  return workers_.contains(worker);
}

bool WorkerRegistry::KeepsGraphs(const std::string& worker) const {
  absl::MutexLock lock(&mutex_);
  const auto it = workers_.find(worker);
  return it != workers_.end() && it->second.registration.keeps_graphs();
}

std::vector<v1::Worker> WorkerRegistry::List() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::Worker> list;
  for (const auto& [name, worker] : workers_) list.push_back(Describe(worker));
  return list;
}

absl::StatusOr<v1::Worker> WorkerRegistry::Get(const std::string& worker) const {
  absl::MutexLock lock(&mutex_);
  const auto it = workers_.find(worker);
  if (it != workers_.end()) return Describe(it->second);
  return absl::NotFoundError(absl::StrCat("no worker \"", worker, "\" is connected"));
}

v1::Worker WorkerRegistry::Describe(const Worker& worker) const {
  v1::Worker out;
  const v1::Register& registration = worker.registration;
  out.set_name(registration.worker());
  out.set_version(registration.version());
  out.set_address(registration.host_address());
  out.set_availability(worker.availability);
  if (registration.has_gpu_machine()) *out.mutable_gpu_machine() = registration.gpu_machine();
  out.mutable_last_heartbeat_time()->set_seconds(
      absl::ToUnixSeconds(OnTheClock(worker.last_heard)));
  for (int i = 0; i < registration.devices_size(); ++i) {
    const v1::Device& device = registration.devices(i);
    v1::WorkerDevice* entry = out.add_devices();
    entry->set_name(device.name());
    entry->set_kind(registration.kinds(device.kind()).name());
    entry->set_memory_bytes(device.memory_bytes());
    entry->set_job(worker.held[static_cast<size_t>(i)].job);
    entry->set_ending(worker.held[static_cast<size_t>(i)].ending);
    const auto* kept = quarantine_.Find(absl::StrCat(registration.worker(), "/", device.name()));
    if (kept == nullptr) continue;
    entry->mutable_quarantined_until()->set_seconds(absl::ToUnixSeconds(OnTheClock(kept->until)));
    entry->set_quarantine_reason(kept->why);
  }
  return out;
}

}  // namespace stagewright
