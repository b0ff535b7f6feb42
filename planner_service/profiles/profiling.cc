#include "planner_service/profiles/profiling.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/one_line.h"
#include "common/training/field_check.h"
#include "common/wire/profile_proto.h"

namespace stagewright {
namespace {

constexpr int64_t kDefaultSamples = 16;
constexpr size_t kMostReasons = 8;  // In a message.

// Whom the registry names as the holder of the device.
std::string HolderName(int64_t number) { return absl::StrCat("profiles/", number); }

// A free device of those wanted, else one that a run is about to leave.
absl::StatusOr<RegisteredDevice> Choose(const WorkerRegistry& registry, const std::string& wanted) {
  std::optional<RegisteredDevice> left;
  std::vector<std::string> reasons;
  for (const RegisteredDevice& device : registry.Devices(/*free_only=*/false)) {
    const std::string name = device.QualifiedName();
    if (!wanted.empty() && device.worker != wanted && name != wanted) continue;
    if (device.job.empty() && device.available) return device;
    if (device.ending && !device.stuck && device.available && !left.has_value()) left = device;
    reasons.push_back(device.available ? absl::StrCat(name, " is held by ", device.job)
                                       : absl::StrCat(name, " is closed to new work"));
  }
  if (left.has_value()) return *std::move(left);
  const std::string which = wanted.empty() ? "a device" : absl::StrCat("device \"", wanted, "\"");
  if (reasons.empty() && wanted.empty()) return absl::NotFoundError("no worker is connected");
  if (reasons.empty()) return absl::NotFoundError(absl::StrCat(which, " is not connected"));
  if (reasons.size() > kMostReasons) {
    reasons.resize(kMostReasons);
    reasons.push_back("...");
  }
  return absl::FailedPreconditionError(
      absl::StrCat(which, " is not free: ", absl::StrJoin(reasons, ", ")));
}

v1::ConnectResponse Order(int64_t number, const std::string& device,
                          v1::ProfileGraphRequest request) {
  v1::ConnectResponse message;
  v1::ProfileOperators& asked = *message.mutable_profile_operators();
  asked.set_request(number);
  *asked.mutable_graph() = std::move(*request.mutable_graph());
  asked.set_device_name(device);
  asked.set_precision(request.precision());
  asked.set_most_samples(request.most_samples() == 0 ? kDefaultSamples : request.most_samples());
  return message;
}

}  // namespace

absl::StatusOr<int64_t> Profiling::Start(const v1::ProfileGraphRequest& request, Done done) {
  if (request.most_samples() < 0 || request.most_samples() > kMostProfiledSamples) {
    return WrongField("", "most_samples", "must be between 0 and ", kMostProfiledSamples, ", is ",
                      request.most_samples());
  }
  int64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    number = next_++;
    running_[number] = {{}, std::move(done), request};
  }
  const absl::Status begun = TryBegin(number);
  if (begun.ok()) return number;
  absl::MutexLock lock(&mutex_);
  // Unless a tick was quicker, and told it.
  return running_.erase(number) == 0 ? absl::StatusOr<int64_t>(number) : begun;
}

absl::Status Profiling::TryBegin(int64_t number) {
  v1::ConnectResponse order;
  std::string worker;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = running_.find(number);
    if (found == running_.end() || !found->second.waiting.has_value()) return absl::OkStatus();
    Running& running = found->second;
    ASSIGN_OR_RETURN(running.device, Choose(*registry_, running.waiting->device()));
    if (running.device.software.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the program of worker ", running.device.worker, " does not measure operators"));
    }
    if (running.device.ending) return absl::OkStatus();
    RETURN_IF_ERROR(registry_->Allocate(HolderName(number), {running.device.QualifiedName()}));
    order = Order(number, running.device.device.name(), *std::move(running.waiting));
    running.waiting.reset();
    worker = running.device.worker;
  }
  if (!registry_->Send(worker, order)) EndLost(number, worker);
  return absl::OkStatus();
}

void Profiling::End(int64_t number, absl::StatusOr<v1::ProfileGraphResponse> result) {
  Done done;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = running_.find(number);
    if (found == running_.end()) return;
    done = std::move(found->second.done);
    running_.erase(found);
  }
  registry_->Release(HolderName(number));
  if (done != nullptr) done(std::move(result));
}

void Profiling::Cancel(int64_t number) {
  v1::ConnectResponse message;
  message.mutable_stop_profiling()->set_request(number);
  std::string worker;
  Done done;
  bool begun = false;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = running_.find(number);
    if (found == running_.end() || found->second.done == nullptr) return;
    worker = found->second.device.worker;
    done = std::exchange(found->second.done, nullptr);  // The device is free when the worker stops.
    begun = !found->second.waiting.has_value();
    if (!begun) running_.erase(found);
  }
  done(absl::CancelledError("the measurement was cancelled"));
  if (begun && !registry_->Send(worker, message)) EndLost(number, worker);
}

absl::StatusOr<v1::ProfileGraphResponse> Profiling::Keep(const RegisteredDevice& device,
                                                         const v1::OperatorsProfiled& message) {
  const std::string who = absl::StrCat("worker ", device.worker);
  if (message.code() != 0) {
    return OneLine(absl::Status(static_cast<absl::StatusCode>(message.code()),
                                absl::StrCat(who, ": ", message.message())));
  }
  v1::ProfileGraphResponse response;
  response.set_device(device.QualifiedName());
  *response.mutable_profile() = message.profile();
  response.mutable_profile()->set_device_kind(device.kind.name());
  response.mutable_profile()->set_software(device.software);
  *response.mutable_unmeasured() = message.unmeasured();
  OperatorProfile profile;
  RETURN_IF_ERROR(OneLine(Annotate(Merge(response.profile(), profile), who)));
  RETURN_IF_ERROR(store_->Write(profile));
  return response;
}

void Profiling::OnProfiled(const std::string& worker, const v1::OperatorsProfiled& message) {
  RegisteredDevice device;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = running_.find(message.request());
    if (found == running_.end() || found->second.device.worker != worker) return;
    device = found->second.device;
  }
  End(message.request(), Keep(device, message));
}

void Profiling::OnLost(const std::string& worker) {
  std::vector<int64_t> numbers;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [number, running] : running_) {
      if (running.device.worker == worker && !running.waiting.has_value() && !Holds(number))
        numbers.push_back(number);
    }
  }
  for (const int64_t number : numbers) EndLost(number, worker);
}

bool Profiling::Holds(int64_t number) const {
  const std::vector<RegisteredDevice> devices = registry_->Devices(/*free_only=*/false);
  return std::any_of(devices.begin(), devices.end(), [&](const RegisteredDevice& device) {
    return device.job == HolderName(number);
  });
}

void Profiling::EndLost(int64_t number, const std::string& worker) {
  End(number, absl::UnavailableError(absl::StrCat("worker ", worker, " was lost")));
}

void Profiling::Tick() {
  std::map<int64_t, std::string> lost;
  std::vector<int64_t> waiting;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [number, running] : running_) {
      if (running.waiting.has_value()) {
        waiting.push_back(number);
      } else if (!Holds(number)) {
        lost[number] = running.device.worker;
      }
    }
  }
  for (const auto& [number, worker] : lost) EndLost(number, worker);
  for (const int64_t number : waiting) {
    if (absl::Status refused = TryBegin(number); !refused.ok()) End(number, std::move(refused));
  }
}

}  // namespace stagewright
