#include "planner_service/profiles/profile_choice.h"

#include <map>
#include <set>
#include <string>

namespace stagewright {

OperatorProfile ProfileOf(const std::vector<RegisteredDevice>& devices,
                          const OperatorProfile& known) {
  OperatorProfile profile;
  std::set<std::string> mixed;
  std::map<std::string, std::string> software;  // By kind.
  for (const RegisteredDevice& device : devices) {
    const ProfiledDevice key{device.kind.name(), device.software};
    // One kind has one profile, which must be true of all its devices.
    if (software.try_emplace(key.kind, key.software).first->second != key.software)
      mixed.insert(key.kind);
    const auto found = known.devices.find(key);
    if (found != known.devices.end()) profile.devices.insert(*found);
  }
  std::erase_if(profile.devices,
                [&](const auto& entry) { return mixed.contains(entry.first.kind); });
  return profile;
}

}  // namespace stagewright
