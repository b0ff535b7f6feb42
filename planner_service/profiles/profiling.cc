#include "planner_service/profiles/profiling.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/one_line.h"
#include "common/wire/profile_proto.h"

namespace stagewright {
namespace {

constexpr int64_t kDefaultSamples = 16;

// Whom the registry names as the holder of the device.
std::string HolderName(int64_t number) { return absl::StrCat("profiles/", number); }

absl::StatusOr<RegisteredDevice> Choose(const WorkerRegistry& registry, const std::string& wanted) {
  const std::vector<RegisteredDevice> devices = registry.Devices(/*free_only=*/false);
  bool known = false;
  for (const RegisteredDevice& device : devices) {
    if (!wanted.empty() && device.worker != wanted && device.QualifiedName() != wanted) continue;
    known = true;
    if (device.job.empty()) return device;
  }
  const std::string which = wanted.empty() ? "a device" : absl::StrCat("device \"", wanted, "\"");
  if (known) return absl::FailedPreconditionError(absl::StrCat(which, " is not free"));
  return absl::NotFoundError(absl::StrCat(which, " is not connected"));
}

}  // namespace

absl::StatusOr<int64_t> Profiling::Start(const v1::ProfileGraphRequest& request, Done done) {
  if (request.most_samples() < 0 || request.most_samples() > kMostProfiledSamples) {
    return absl::InvalidArgumentError(absl::StrCat("most_samples must be between 0 and ",
                                                   kMostProfiledSamples, ", is ",
                                                   request.most_samples()));
  }
  ASSIGN_OR_RETURN(const RegisteredDevice device, Choose(*registry_, request.device()));
  if (device.software.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the program of worker ", device.worker, " does not measure operators"));
  }
  int64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    number = next_++;
    RETURN_IF_ERROR(registry_->Allocate(HolderName(number), {device.QualifiedName()}));
    running_[number] = {device, std::move(done)};
  }
  v1::ConnectResponse message;
  v1::ProfileOperators& asked = *message.mutable_profile_operators();
  asked.set_request(number);
  *asked.mutable_graph() = request.graph();
  asked.set_device_name(device.device.name());
  asked.set_precision(request.precision());
  asked.set_most_samples(request.most_samples() == 0 ? kDefaultSamples : request.most_samples());
  if (!registry_->Send(device.worker, message)) OnLost(device.worker);
  return number;
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
  {
    absl::MutexLock lock(&mutex_);
    const auto found = running_.find(number);
    if (found == running_.end() || found->second.done == nullptr) return;
    worker = found->second.device.worker;
    done = std::exchange(found->second.done, nullptr);  // The device is free when the worker stops.
  }
  done(absl::CancelledError("the measurement was cancelled"));
  if (!registry_->Send(worker, message)) OnLost(worker);
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
  RETURN_IF_ERROR(store_.Write(profile));
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
      if (running.device.worker == worker) numbers.push_back(number);
    }
  }
  for (const int64_t number : numbers)
    End(number, absl::UnavailableError(absl::StrCat("worker ", worker, " was lost")));
}

void Profiling::Tick() {
  std::vector<std::string> lost;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [number, running] : running_) {
      if (!registry_->Connected(running.device.worker)) lost.push_back(running.device.worker);
    }
  }
  for (const std::string& worker : lost) OnLost(worker);
}

}  // namespace stagewright
