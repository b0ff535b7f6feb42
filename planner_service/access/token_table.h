// The tokens that the planner knows, from a file with a line each:
//
//   TOKEN  ROLE  USER  [TENANT]
//
// TOKEN is the token itself, of 16 characters at least, or "sha256:" and the 64 hexadecimal digits
// of its digest. Empty lines and lines that begin with # are left out.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "planner_service/access/roles.h"

namespace stagewright {

struct Caller {
  Role role = Role::kAnybody;
  std::string user;    // A worker's: its name; "*" for a worker of any name.
  std::string tenant;  // Empty: none.
};

class TokenTable {
 public:
  // INVALID_ARGUMENT names the line, never the token: too few words or too many, a role that does
  // not exist, a short token, a token given twice; or says that there is none: a file that somebody
  // has just emptied, to write it anew, takes nobody's token away.
  static absl::StatusOr<TokenTable> Parse(absl::string_view text);

  // Whose token it is; nothing for one that is not known. Takes as long whichever line it is.
  std::optional<Caller> Find(absl::string_view token) const;

  size_t size() const { return entries_.size(); }

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Entry {
    Digest digest;
    Caller caller;
  };
  std::vector<Entry> entries_;
};

}  // namespace stagewright
