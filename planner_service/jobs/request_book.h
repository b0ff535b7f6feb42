// Which requests were carried out, by the ids that clients gave them: a call that is repeated is
// answered as the first, and an id that is used for something else is refused.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace stagewright {

namespace v1 {
class JobSpec;
}  // namespace v1

// 32 hexadecimal digits of what a request asks for. Equal specs have equal digests, also those of
// other processes of this program. No protection against those who look for equal ones.
std::string DigestOf(const v1::JobSpec& spec);
std::string DigestOfCancel(absl::string_view job);

struct KnownRequest {
  std::string job;     // "jobs/7"
  std::string digest;  // Empty: kept by a program that kept none; anything is equal to it.
};

// "jobs/7 0123...", as the store has it.
std::string ToText(const KnownRequest& request);
KnownRequest RequestFromText(absl::string_view text);

// Not thread-safe.
class RequestBook {
 public:
  // As the store has them, by id.
  void Load(const std::map<std::string, std::string>& stored);
  // Null if the id is empty or new. ALREADY_EXISTS if it was that of another request.
  absl::StatusOr<const KnownRequest*> Find(const std::string& id, const std::string& digest) const;
  // Whatever it was for. Not if it is empty.
  bool Knows(const std::string& id) const { return requests_.contains(id); }
  void Add(const std::string& id, KnownRequest request);
  // The ids of a job's requests. O(those), as Forget is but for logarithms.
  std::vector<std::string> IdsOf(const std::string& job) const;
  void Forget(const std::vector<std::string>& ids);

 private:
  std::map<std::string, KnownRequest> requests_;         // By id.
  std::map<std::string, std::set<std::string>> ids_of_;  // By job.
};

}  // namespace stagewright
