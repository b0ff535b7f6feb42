#include "planner_service/queue/parse_quotas.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

struct Quota {
  std::string name;
  int64_t devices = 0;
};

// `whose` is "OWNER" or "TENANT".
absl::StatusOr<Quota> Parse(const std::string& text, const char* whose) {
  // Names may have the sign, numbers may not.
  const size_t sign = text.rfind('=');
  int64_t devices = 0;
  const bool is_one = sign != std::string::npos && sign > 0 &&
                      absl::SimpleAtoi(text.substr(sign + 1), &devices) && devices >= 0;
  if (is_one) return Quota{text.substr(0, sign), devices};
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is no quota: expected ", whose,
                                                 "=DEVICES, or *=DEVICES for all others"));
}

}  // namespace

absl::StatusOr<QueueRules> ParseQuotas(const std::vector<std::string>& owners,
                                       const std::vector<std::string>& tenants) {
  QueueRules rules;
  const auto add = [&](const Quota& quota, Account account, std::optional<int64_t>& others) {
    const bool known = quota.name == "*" ? others.has_value() : rules.quotas.contains(account);
    if (known) return absl::InvalidArgumentError(absl::StrCat(account.Text(), " has two quotas"));
    if (quota.name == "*") {
      others = quota.devices;
    } else {
      rules.quotas[std::move(account)] = quota.devices;
    }
    return absl::OkStatus();
  };
  for (const std::string& text : owners) {
    ASSIGN_OR_RETURN(const Quota quota, Parse(text, "OWNER"));
    RETURN_IF_ERROR(add(quota, Account::Of(quota.name, ""), rules.other_owners));
  }
  for (const std::string& text : tenants) {
    ASSIGN_OR_RETURN(const Quota quota, Parse(text, "TENANT"));
    RETURN_IF_ERROR(add(quota, Account::Of("", quota.name), rules.other_tenants));
  }
  return rules;
}

}  // namespace stagewright
