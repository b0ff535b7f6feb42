// Where the service keeps what must survive it: an ordered map from keys to values, written in
// atomic batches.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace stagewright {

struct Mutation {
  std::string key;
  std::optional<std::string> value;  // Absent: delete the key.
};

// Thread-safe. A batch whose Write returned OK survives a crash of the process and of the machine;
// one whose Write failed has no effect.
class Store {
 public:
  virtual ~Store() = default;
  virtual absl::Status Write(const std::vector<Mutation>& batch) = 0;
  // NOT_FOUND if there is no such key.
  virtual absl::StatusOr<std::string> Read(const std::string& key) const = 0;
  // All entries whose key starts with `prefix`, in key order.
  virtual absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Scan(
      const std::string& prefix) const = 0;
};

}  // namespace stagewright
