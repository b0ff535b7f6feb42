#include "planner_service/profiles/profile_store.h"

#include <map>
#include <string>
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

absl::Status ProfileStore::Write(const OperatorProfile& profile) {
  std::vector<Mutation> batch;
  bool by_itself = false;
  for (const auto& [device, operators] : profile.devices) {
    for (const auto& [signature, measured] : operators) {
      const bool of_job = !measured.job.empty();
      by_itself |= !of_job;
      const std::string key = KeyOf(device, signature, of_job);
      MeasuredOperator kept = measured;
      v1::DeviceProfile stored;
      OperatorProfile older;
      const auto before = of_job ? store_->Read(key) : absl::NotFoundError("");
      if (before.ok() && stored.ParseFromString(*before) && Merge(stored, older).ok())
        AddOlder(older.devices[device][signature], kept);
      batch.push_back({key, ToProto(device, {{signature, kept}}).SerializeAsString()});
    }
  }
  if (batch.empty()) return absl::OkStatus();
  absl::Status written = store_->Write(batch);
  // Even if it failed: a store on another machine may not have said that it has it.
  if (by_itself) ++version_;
  return written;
}

absl::StatusOr<OperatorProfile> ProfileStore::Read() const {
  OperatorProfile profile;
  for (const absl::string_view kind : {kOfJobs, kProfiles}) {
    ASSIGN_OR_RETURN(const auto entries, store_->Scan(std::string(kind)));
    for (const auto& [key, value] : entries) {
      v1::DeviceProfile entry;
      if (!entry.ParseFromString(value) || !Merge(entry, profile).ok())
        return absl::DataLossError(absl::StrCat("store: entry ", key, " is damaged"));
    }
  }
  return profile;
}

}  // namespace stagewright
