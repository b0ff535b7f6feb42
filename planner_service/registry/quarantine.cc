#include "planner_service/registry/quarantine.h"

namespace stagewright {

void Quarantine::NoteFailure(const std::string& device, const std::string& why, absl::Time now,
                             int enough) {
  Entry& entry = entries_[device];
  std::erase_if(entry.failures, [now](absl::Time time) { return time < now - kFailuresWithin; });
  entry.failures.push_back(now);
  entry.why = why;
  if (entry.failures.size() < static_cast<size_t>(enough)) return;
  entry.until = now + kQuarantineLasts;
  entry.failures.clear();
}

void Quarantine::Expire(absl::Time now) {
  std::erase_if(entries_, [now](const auto& named) {
    const Entry& entry = named.second;
    const bool counts = !entry.failures.empty() && entry.failures.back() >= now - kFailuresWithin;
    return entry.until <= now && !counts;
  });
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
