#include "planner_service/profiles/profile_choice.h"

#include <map>
#include <set>
#include <string>

namespace stagewright {

namespace {

std::set<std::string> KindsOfSeveralSoftwares(const std::vector<RegisteredDevice>& devices) {
  std::set<std::string> several;
  std::map<std::string, std::string> software;  // By kind.
  for (const RegisteredDevice& device : devices) {
    const std::string& kind = device.kind.name();
    if (software.try_emplace(kind, device.software).first->second != device.software)
      several.insert(kind);
  }
  return several;
}

}  // namespace

std::set<std::string> UnlikeKinds(const std::vector<RegisteredDevice>& devices) {
  std::set<std::string> unlike = KindsOfSeveralSoftwares(devices);
  std::map<std::string, int32_t> threads;  // By machine.
  for (const RegisteredDevice& device : devices) threads[device.host_address] += device.threads;
  for (const RegisteredDevice& device : devices) {
    if (device.host_cores > 0 && threads[device.host_address] > device.host_cores)
      unlike.insert(device.kind.name());
  }
  return unlike;
}

OperatorProfile ProfileOf(const std::vector<RegisteredDevice>& devices, const Cluster& cluster,
                          const OperatorProfile& known) {
  const std::set<std::string> several = KindsOfSeveralSoftwares(devices);
  OperatorProfile profile;
  for (size_t i = 0; i < devices.size(); ++i) {
    const RegisteredDevice& device = devices[i];
    const auto found = known.devices.find({device.kind.name(), device.software});
    if (found == known.devices.end() || several.contains(device.kind.name())) continue;
    // Rates of a moment tell devices of a kind apart in a cluster, where other programs had the
    // cores while one of them measured. Operators are measured until their times are stable.
    const DeviceKind& planned = cluster.kind_of(DeviceId(static_cast<int64_t>(i)));
    profile.devices.insert({{planned.name, device.software}, found->second});
  }
  return profile;
}

}  // namespace stagewright
