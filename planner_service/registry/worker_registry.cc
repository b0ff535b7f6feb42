#include "planner_service/registry/worker_registry.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "common/wire/topology_proto.h"

namespace stagewright {
namespace {

absl::Status CheckRegistration(const v1::Register& message) {
  if (message.worker().empty()) return absl::InvalidArgumentError("register.worker is empty");
  if (message.worker().find('/') != std::string::npos) {
    return absl::InvalidArgumentError("register.worker: a name must not contain '/'");
  }
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
  for (const v1::DeviceKind& kind : message.kinds())
    RETURN_IF_ERROR(CheckKind(FromProto(kind), absl::StrCat(where, " kind \"", kind.name(), "\"")));
  return absl::OkStatus();
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
  worker.holder.resize(message.devices_size());
  worker.sink = std::move(sink);
  worker.session = next_session_++;
  worker.last_heard = now;
  return worker.session;
}

bool WorkerRegistry::Unregister(const std::string& worker, int64_t session) {
  absl::MutexLock lock(&mutex_);
  auto it = workers_.find(worker);
  if (it == workers_.end() || it->second.session != session) return false;
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

std::vector<RegisteredDevice> WorkerRegistry::Devices(bool free_only) const {
  absl::MutexLock lock(&mutex_);
  std::vector<RegisteredDevice> devices;
  for (const auto& [name, worker] : workers_) {
    for (int i = 0; i < worker.registration.devices_size(); ++i) {
      if (free_only && !worker.holder[i].empty()) continue;
      const v1::Device& device = worker.registration.devices(i);
      devices.push_back({name, i, device, worker.registration.kinds(device.kind()),
                         worker.registration.host_address(), worker.registration.host_cores(),
                         worker.registration.threads_per_device(),
                         worker.registration.probes_links(), worker.registration.software(),
                         worker.holder[i]});
    }
  }
  return devices;
}

absl::Status WorkerRegistry::Allocate(const std::string& job,
                                      const std::vector<std::string>& devices) {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string*> holders;
  for (const std::string& qualified : devices) {
    const size_t slash = qualified.find('/');
    auto it = workers_.find(qualified.substr(0, slash));
    std::string* holder = nullptr;
    if (it != workers_.end() && slash != std::string::npos) {
      for (int i = 0; i < it->second.registration.devices_size(); ++i) {
        if (it->second.registration.devices(i).name() == qualified.substr(slash + 1))
          holder = &it->second.holder[i];
      }
    }
    if (holder == nullptr)
      return absl::FailedPreconditionError(absl::StrCat("device ", qualified, " is not connected"));
    if (!holder->empty() && *holder != job) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", qualified, " is held by ", *holder));
    }
    holders.push_back(holder);
  }
  for (std::string* holder : holders) *holder = job;
  return absl::OkStatus();
}

void WorkerRegistry::Release(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  for (auto& [name, worker] : workers_) {
    for (std::string& holder : worker.holder) {
      if (holder == job) holder.clear();
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

std::vector<v1::Worker> WorkerRegistry::List() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::Worker> list;
  for (const auto& [name, worker] : workers_) {
    v1::Worker& out = list.emplace_back();
    out.set_name(name);
    out.set_version(worker.registration.version());
    out.set_address(worker.registration.host_address());
    const absl::Duration since_epoch = worker.last_heard - absl::UnixEpoch();
    out.mutable_last_heartbeat_time()->set_seconds(absl::ToInt64Seconds(since_epoch));
    for (int i = 0; i < worker.registration.devices_size(); ++i) {
      const v1::Device& device = worker.registration.devices(i);
      v1::WorkerDevice* entry = out.add_devices();
      entry->set_name(device.name());
      entry->set_kind(worker.registration.kinds(device.kind()).name());
      entry->set_memory_bytes(device.memory_bytes());
      entry->set_job(worker.holder[i]);
    }
  }
  return list;
}

}  // namespace stagewright
