#include "planner_service/profiles/profile_choice.h"

#include <map>
#include <set>
#include <string>

namespace stagewright {

std::set<std::string> UnlikeKinds(const std::vector<RegisteredDevice>& devices) {
  std::map<std::string, int32_t> threads;  // By machine.
  for (const RegisteredDevice& device : devices) threads[device.host_address] += device.threads;
  std::set<std::string> unlike;
  std::map<std::string, std::string> software;  // By kind.
  for (const RegisteredDevice& device : devices) {
    const std::string& kind = device.kind.name();
    if (device.host_cores > 0 && threads[device.host_address] > device.host_cores)
      unlike.insert(kind);
    if (software.try_emplace(kind, device.software).first->second != device.software)
      unlike.insert(kind);
  }
  return unlike;
}

OperatorProfile ProfileOf(const std::vector<RegisteredDevice>& devices,
                          const OperatorProfile& known) {
  const std::set<std::string> unlike = UnlikeKinds(devices);
  OperatorProfile profile;
  for (const RegisteredDevice& device : devices) {
    const auto found = known.devices.find({device.kind.name(), device.software});
    if (found != known.devices.end() && !unlike.contains(device.kind.name()))
      profile.devices.insert(*found);
  }
  return profile;
}

}  // namespace stagewright
