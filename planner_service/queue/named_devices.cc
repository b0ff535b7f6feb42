#include "planner_service/queue/named_devices.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace stagewright {
namespace {

using State = NamedDevice::State;

// More than these only fill the line.
constexpr size_t kMostTold = 4;

}  // namespace

bool NamedDevices::AreFree(const WaitingJob& job) const {
  return std::all_of(job.named.begin(), job.named.end(), [&](const std::string& name) {
    return devices_.at(name).state == State::kFree && (!kept_.contains(name) || IsLent(name, job));
  });
}

bool NamedDevices::AnyOut(const WaitingJob& job) const {
  return std::any_of(job.named.begin(), job.named.end(), [&](const std::string& name) {
    return devices_.at(name).state == State::kOut;
  });
}

std::string NamedDevices::WaitsFor(const WaitingJob& job) const {
  std::vector<std::string> told;
  for (const std::string& name : job.named) {
    const NamedDevice& device = devices_.at(name);
    const auto keeper = kept_.find(name);
    if (device.state == State::kHeld || device.state == State::kOut) {
      told.push_back(absl::StrCat(name, ", which ", device.why));
    } else if (device.state == State::kEnding) {
      told.push_back(absl::StrCat(name, ", which is being left"));
    } else if (keeper != kept_.end()) {
      told.push_back(
          absl::StrCat(name, ", which jobs/", keeper->second.job, " waits for before it"));
    }
  }
  if (told.empty()) return "";
  const size_t more = told.size() - std::min(told.size(), kMostTold);
  told.resize(told.size() - more);
  return absl::StrCat("waits for ", absl::StrJoin(told, "; "),
                      more == 0 ? "" : absl::StrCat("; and ", more, " more"));
}

std::optional<std::set<int64_t>> NamedDevices::HoldersOf(const WaitingJob& job) const {
  std::set<int64_t> holders;
  for (const std::string& name : job.named) {
    const NamedDevice& device = devices_.at(name);
    if (device.state == State::kOut || kept_.contains(name)) return std::nullopt;
    if (device.state == State::kHeld) holders.insert(device.holder);
  }
  return holders;
}

int64_t NamedDevices::free() const {
  return std::count_if(devices_.begin(), devices_.end(), [&](const auto& device) {
    return device.second.state == State::kFree && !kept_.contains(device.first);
  });
}

bool NamedDevices::IsLent(const std::string& name, const WaitingJob& job) const {
  const auto keeper = kept_.find(name);
  return keeper != kept_.end() && keeper->second.lends && job.preemptible &&
         job.priority < keeper->second.priority && devices_.at(name).state == State::kFree;
}

int64_t NamedDevices::LentTo(const WaitingJob& job) const {
  if (!job.named.empty()) {
    return std::count_if(job.named.begin(), job.named.end(),
                         [&](const std::string& name) { return IsLent(name, job); });
  }
  return std::count_if(kept_.begin(), kept_.end(),
                       [&](const auto& kept) { return IsLent(kept.first, job); });
}

void NamedDevices::Take(int64_t job, const std::string& name) {
  devices_[name] = {State::kHeld, job, absl::StrCat("jobs/", job, " uses")};
}

void NamedDevices::TakeOwn(const WaitingJob& job) {
  for (const std::string& name : job.named) Take(job.number, name);
}

std::vector<std::string> NamedDevices::TakeFree(int64_t job, int64_t count) {
  std::vector<std::string> taken;
  for (const auto& [name, device] : devices_) {
    if (static_cast<int64_t>(taken.size()) >= count) break;
    if (device.state == State::kFree && !kept_.contains(name)) taken.push_back(name);
  }
  for (const std::string& name : taken) Take(job, name);
  return taken;
}

std::vector<std::string> NamedDevices::TakeLent(const WaitingJob& job, int64_t count) {
  std::vector<std::string> taken;
  for (const auto& [name, keeper] : kept_) {
    if (static_cast<int64_t>(taken.size()) >= count) break;
    if (IsLent(name, job)) taken.push_back(name);
  }
  for (const std::string& name : taken) Take(job.number, name);
  return taken;
}

void NamedDevices::Lend(const WaitingJob& job) {
  for (const std::string& name : job.named) {
    Keeper& keeper = kept_.at(name);
    if (keeper.job == job.number) keeper.lends = true;
  }
}

KeptDevices NamedDevices::Keep(const WaitingJob& job) {
  KeptDevices kept;
  for (const std::string& name : job.named) {
    if (!kept_.emplace(name, Keeper{job.number, job.priority}).second) continue;
    const NamedDevice& device = devices_.at(name);
    if (device.state == State::kFree) ++kept.free;
    if (device.state == State::kEnding) ++kept.ending;
    if (device.state == State::kHeld) ++kept.held[device.holder];
  }
  return kept;
}

}  // namespace stagewright
