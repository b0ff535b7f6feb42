#include "planner_service/profiles/profile_store.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/wire/profile_proto.h"

namespace stagewright {
namespace {

constexpr absl::string_view kProfiles = "profiles/";
constexpr absl::string_view kOfJobs = "job_profiles/";

// Parts of a key, which may themselves have slashes.
std::string KeyOf(const ProfiledDevice& device, const std::string& signature, bool of_job) {
  return absl::StrCat(of_job ? kOfJobs : kProfiles, absl::WebSafeBase64Escape(device.kind), "/",
                      absl::WebSafeBase64Escape(device.software), "/",
                      absl::WebSafeBase64Escape(signature));
}

// What is newer, and what is older at other numbers of samples.
void AddOlder(const MeasuredOperator& older, MeasuredOperator& newer) {
  std::map<int64_t, OperatorMeasurement> all;
  for (const OperatorMeasurement& at : older.samples) all[at.samples] = at;
  for (const OperatorMeasurement& at : newer.samples) all[at.samples] = at;
  newer.samples.clear();
  for (const auto& [samples, at] : all) newer.samples.push_back(at);
}

}  // namespace

ProfileStore::Copy ProfileStore::ReadStore() const {
  auto entries = std::make_shared<Entries>();
  for (const bool of_job : {true, false}) {
    OperatorProfile& profile = of_job ? entries->of_jobs : entries->known;
    if (!of_job) profile = entries->of_jobs;
    ASSIGN_OR_RETURN(const auto found, store_->Scan(std::string(of_job ? kOfJobs : kProfiles)));
    for (const auto& [key, value] : found) {
      v1::DeviceProfile entry;
      if (!entry.ParseFromString(value) || !Merge(entry, profile).ok())
        return absl::DataLossError(absl::StrCat("store: entry ", key, " is damaged"));
    }
  }
  return entries;
}

ProfileStore::Copy ProfileStore::TakeCopy() const {
  {
    absl::MutexLock lock(&mutex_);
    if (copy_.has_value()) return *copy_;
  }
  Copy copy = ReadStore();
  // What is damaged stays so until it is written anew.
  if (copy.ok() || absl::IsDataLoss(copy.status())) SetCopy(copy);
  return copy;
}

absl::StatusOr<std::optional<MeasuredOperator>> ProfileStore::Older(
    const Copy& copy, const ProfiledDevice& device, const std::string& signature) const {
  if (!copy.ok() && !absl::IsDataLoss(copy.status())) return copy.status();
  OperatorProfile one;
  if (!copy.ok()) {  // Because of others perhaps.
    const auto value = store_->Read(KeyOf(device, signature, /*of_job=*/true));
    if (!value.ok() && !absl::IsNotFound(value.status()) && !absl::IsDataLoss(value.status()))
      return value.status();
    v1::DeviceProfile entry;
    if (!value.ok() || !entry.ParseFromString(*value) || !Merge(entry, one).ok())
      return std::nullopt;
  }
  const OperatorProfile& of_jobs = copy.ok() ? (*copy)->of_jobs : one;
  const auto operators = of_jobs.devices.find(device);
  if (operators == of_jobs.devices.end()) return std::nullopt;
  const auto found = operators->second.find(signature);
  if (found == operators->second.end()) return std::nullopt;
  return found->second;
}

absl::Status ProfileStore::Write(const OperatorProfile& profile) {
  absl::MutexLock writing(&writing_);
  const Copy before = TakeCopy();
  std::vector<Mutation> batch;
  OperatorProfile by_itself, of_jobs;
  for (const auto& [device, operators] : profile.devices) {
    for (const auto& [signature, measured] : operators) {
      const bool of_job = !measured.job.empty();
      MeasuredOperator& kept = (of_job ? of_jobs : by_itself).devices[device][signature];
      kept = measured;
      if (of_job) {
        ASSIGN_OR_RETURN(const auto older, Older(before, device, signature));
        if (older.has_value()) AddOlder(*older, kept);
      }
      batch.push_back({KeyOf(device, signature, of_job),
                       ToProto(device, {{signature, kept}}).SerializeAsString()});
    }
  }
  if (batch.empty()) return absl::OkStatus();
  absl::Status written = store_->Write(batch);
  if (written.ok() || absl::IsDeadlineExceeded(written)) {
    std::optional<Copy> after;
    if (written.ok() && before.ok()) {
      auto entries = std::make_shared<Entries>(**before);
      Merge(of_jobs, entries->of_jobs);
      Merge(of_jobs, entries->known);
      Merge(by_itself, entries->known);
      after = std::move(entries);
    }
    SetCopy(std::move(after));
  }
  // Even if it failed: a store on another machine may not have said that it has it.
  if (!by_itself.empty()) ++version_;
  return written;
}

absl::StatusOr<std::shared_ptr<const OperatorProfile>> ProfileStore::Read() const {
  std::optional<Copy> copy;
  {
    absl::MutexLock lock(&mutex_);
    copy = copy_;
  }
  if (!copy.has_value()) {
    absl::MutexLock writing(&writing_);
    copy = TakeCopy();
  }
  return Shown(*copy);
}

absl::StatusOr<std::shared_ptr<const OperatorProfile>> ProfileStore::Known() const {
  absl::MutexLock lock(&mutex_);
  return Shown(last_);
}

bool ProfileStore::current() const {
  absl::MutexLock lock(&mutex_);
  return copy_.has_value();
}

absl::StatusOr<std::shared_ptr<const OperatorProfile>> ProfileStore::Shown(const Copy& copy) {
  RETURN_IF_ERROR(copy.status());
  return std::shared_ptr<const OperatorProfile>(*copy, &(*copy)->known);
}

void ProfileStore::SetCopy(std::optional<Copy> copy) const {
  absl::MutexLock lock(&mutex_);
  if (copy.has_value()) last_ = *copy;
  copy_ = std::move(copy);
}

}  // namespace stagewright
