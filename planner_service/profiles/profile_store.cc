#include "planner_service/profiles/profile_store.h"

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/wire/profile_proto.h"

namespace stagewright {
namespace {

constexpr absl::string_view kProfiles = "profiles/";

// Parts of a key, which may themselves have slashes.
std::string KeyOf(const ProfiledDevice& device, const std::string& signature) {
  return absl::StrCat(kProfiles, absl::WebSafeBase64Escape(device.kind), "/",
                      absl::WebSafeBase64Escape(device.software), "/",
                      absl::WebSafeBase64Escape(signature));
}

}  // namespace

absl::Status ProfileStore::Write(const OperatorProfile& profile) {
  std::vector<Mutation> batch;
  for (const auto& [device, operators] : profile.devices) {
    for (const auto& [signature, measured] : operators) {
      batch.push_back(
          {KeyOf(device, signature), ToProto(device, {{signature, measured}}).SerializeAsString()});
    }
  }
  return batch.empty() ? absl::OkStatus() : store_->Write(batch);
}

absl::StatusOr<OperatorProfile> ProfileStore::Read() const {
  ASSIGN_OR_RETURN(const auto entries, store_->Scan(std::string(kProfiles)));
  OperatorProfile profile;
  for (const auto& [key, value] : entries) {
    v1::DeviceProfile entry;
    if (!entry.ParseFromString(value) || !Merge(entry, profile).ok())
      return absl::DataLossError(absl::StrCat("store: entry ", key, " is damaged"));
  }
  return profile;
}

}  // namespace stagewright
