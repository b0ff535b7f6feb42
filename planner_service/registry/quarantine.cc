#include "planner_service/registry/quarantine.h"

#include <algorithm>

namespace stagewright {
namespace {

absl::Duration LastsAfter(int earlier) {
  absl::Duration lasts = kQuarantineLasts;
  for (int i = 0; i < earlier && lasts < kLongestQuarantine; ++i) lasts *= 2;
  return std::min(lasts, kLongestQuarantine);
}

// Nothing of it counts any more.
bool HasBehaved(const Quarantine::Entry& entry, absl::Time now) {
  return entry.behaves_since < now - (entry.times > 0 ? kForgottenAfter : kFailuresWithin);
}

}  // namespace

void Quarantine::NoteFailure(const std::string& device, const std::string& why, absl::Time now,
                             int enough) {
  Entry& entry = entries_[device];
  if (HasBehaved(entry, now)) entry = {};
  std::erase_if(entry.failures, [now](absl::Time time) { return time < now - kFailuresWithin; });
  entry.failures.push_back(now);
  entry.why = why;
  if (entry.failures.size() >= static_cast<size_t>(enough)) {
    entry.until = now + LastsAfter(entry.times++);
    entry.failures.clear();
  }
  entry.behaves_since = std::max(now, entry.until);
}

void Quarantine::Expire(absl::Time now) {
  std::erase_if(entries_, [now](const auto& named) { return HasBehaved(named.second, now); });
  for (auto& [device, entry] : entries_) {
    if (entry.until <= now) entry.until = absl::InfinitePast();
  }
}

const Quarantine::Entry* Quarantine::Find(const std::string& device) const {
  const auto it = entries_.find(device);
  const bool held = it != entries_.end() && it->second.until > absl::InfinitePast();
  return held ? &it->second : nullptr;
}

}  // namespace stagewright
