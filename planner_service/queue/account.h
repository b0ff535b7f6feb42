// Whom a job is charged to: quotas and fair shares are of accounts.
#pragma once

#include <compare>
#include <string>

#include "absl/strings/str_cat.h"

namespace stagewright {

// A tenant, whose members share one; or a user without a tenant; or, with neither, nobody.
struct Account {
  std::string tenant;
  std::string owner;  // Empty if there is a tenant.

  static Account Of(const std::string& owner, const std::string& tenant) {
    return {tenant, tenant.empty() ? owner : ""};
  }

  // "tenant vision", "owner alice", "jobs without an owner".
  std::string Text() const {
    if (!tenant.empty()) return absl::StrCat("tenant ", tenant);
    return owner.empty() ? "jobs without an owner" : absl::StrCat("owner ", owner);
  }

  friend auto operator<=>(const Account&, const Account&) = default;
};

}  // namespace stagewright
