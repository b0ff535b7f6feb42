#include "planner_service/registry/transport_key.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "common/base/check.h"

namespace stagewright {
namespace {

constexpr size_t kBytes = 32;  // As long as the digests that it is for.

}  // namespace

std::string NewTransportKey(const std::vector<RegisteredDevice>& registered,
                            const std::vector<std::string>& names) {
  std::set<std::string> prove;
  for (const RegisteredDevice& device : registered) {
    if (device.proves_key) prove.insert(device.QualifiedName());
  }
  if (!std::all_of(names.begin(), names.end(),
                   [&](const std::string& name) { return prove.contains(name); }))
    return "";
  std::string key(kBytes, '\0');
  CHECK(getentropy(key.data(), key.size()) == 0);  // Fails only where a kernel has no generator.
  return key;
}

}  // namespace stagewright
