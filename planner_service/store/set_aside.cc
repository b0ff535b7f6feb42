#include "planner_service/store/set_aside.h"

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

constexpr absl::string_view kPrefix = "damaged/";

}  // namespace

std::string SetAsideKey(absl::string_view key) { return absl::StrCat(kPrefix, key); }

absl::Status SetAside(Store& store, const std::string& key) {
  ASSIGN_OR_RETURN(std::string value, store.Read(key));
  return store.Write({{SetAsideKey(key), std::move(value)}, {key, std::nullopt}});
}

absl::StatusOr<std::vector<std::string>> KeysSetAside(const Store& store) {
  ASSIGN_OR_RETURN(std::vector<std::string> keys, store.Keys(std::string(kPrefix)));
  for (std::string& key : keys) key.erase(0, kPrefix.size());
  return keys;
}

absl::StatusOr<int> DropSetAside(Store& store) {
  ASSIGN_OR_RETURN(const std::vector<std::string> keys, store.Keys(std::string(kPrefix)));
  std::vector<Mutation> batch;
  for (const std::string& key : keys) batch.push_back({key, std::nullopt});
  if (!batch.empty()) RETURN_IF_ERROR(store.Write(batch));
  return static_cast<int>(keys.size());
}

}  // namespace stagewright
