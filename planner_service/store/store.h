// Where the service keeps what must survive it: an ordered map from keys to values, written in
// atomic batches. Keys and values are any bytes.
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

// What must be so for a batch to be written.
struct Condition {
  std::string key;
  std::optional<std::string> value;  // Absent: there is no such key.
};

// Thread-safe. A batch whose Write returned OK survives a crash of the process and of the machine;
// one whose Write failed has no effect, unless the error is DEADLINE_EXCEEDED: a store on another
// machine did not say which. RESOURCE_EXHAUSTED, UNAVAILABLE and DEADLINE_EXCEEDED may pass;
// FAILED_PRECONDITION does not: the store is another's now, or unusable.
class Store {
 public:
  virtual ~Store() = default;
  // In the order of the batch: the last mutation of a key counts.
  absl::Status Write(const std::vector<Mutation>& batch) { return WriteIf({}, batch); }
  // ABORTED names the first condition that does not hold.
  virtual absl::Status WriteIf(const std::vector<Condition>& conditions,
                               const std::vector<Mutation>& batch) = 0;
  // NOT_FOUND if there is no such key; DATA_LOSS if its value is damaged.
  virtual absl::StatusOr<std::string> Read(const std::string& key) const = 0;
  // All entries whose key starts with `prefix`, in the order of the keys' bytes. DATA_LOSS names
  // the first that is damaged.
  virtual absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Scan(
      const std::string& prefix) const = 0;
  // The same without values.
  virtual absl::StatusOr<std::vector<std::string>> Keys(const std::string& prefix) const = 0;
};

}  // namespace stagewright
