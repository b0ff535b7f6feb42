#include "planner_service/store/timed_store.h"

#include "common/clock/steady_now.h"

namespace stagewright {
namespace {

absl::StatusCode CodeOf(const absl::Status& status) { return status.code(); }
template <typename T>
absl::StatusCode CodeOf(const absl::StatusOr<T>& result) {
  return result.status().code();
}

}  // namespace

template <typename Call>
auto TimedStore::Timed(const char* name, Call&& call) const {
  const absl::Time start = SteadyNow();
  auto result = call();
  ended_({name, SteadyNow() - start, CodeOf(result)});
  return result;
}

absl::Status TimedStore::WriteIf(const std::vector<Condition>& conditions,
                                 const std::vector<Mutation>& batch) {
  return Timed("write", [&] { return store_->WriteIf(conditions, batch); });
}

absl::StatusOr<std::string> TimedStore::Read(const std::string& key) const {
  return Timed("read", [&] { return store_->Read(key); });
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> TimedStore::Scan(
    const std::string& prefix) const {
  return Timed("scan", [&] { return store_->Scan(prefix); });
}

absl::StatusOr<std::vector<std::string>> TimedStore::Keys(const std::string& prefix) const {
  return Timed("keys", [&] { return store_->Keys(prefix); });
}

}  // namespace stagewright
