// A store that says how long each call took.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "planner_service/store/store.h"

namespace stagewright {

struct StoreCall {
  const char* name = "";  // "write", "read", "scan", "keys".
  absl::Duration took;
  absl::StatusCode code = absl::StatusCode::kOk;
};

// Thread-safe, as the store that it asks.
class TimedStore : public Store {
 public:
  // `ended` is called on the thread of the call.
  TimedStore(std::unique_ptr<Store> store, std::function<void(const StoreCall&)> ended)
      : store_(std::move(store)), ended_(std::move(ended)) {}

  absl::Status WriteIf(const std::vector<Condition>& conditions,
                       const std::vector<Mutation>& batch) override;
  absl::StatusOr<std::string> Read(const std::string& key) const override;
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Scan(
      const std::string& prefix) const override;
  absl::StatusOr<std::vector<std::string>> Keys(const std::string& prefix) const override;

 private:
  template <typename Call>
  auto Timed(const char* name, Call&& call) const;

  const std::unique_ptr<Store> store_;
  const std::function<void(const StoreCall&)> ended_;
};

}  // namespace stagewright
