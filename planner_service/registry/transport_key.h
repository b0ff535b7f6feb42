// The secret by which the transports of one attempt of a job tell each other from strangers.
#pragma once

#include <string>
#include <vector>

#include "planner_service/registry/registered_device.h"

namespace stagewright {

// 32 bytes of the system's generator, anew at each call, for the transports of `names`, which are
// RegisteredDevice::QualifiedName()s. Empty if the worker of one of them is not among `registered`
// or does not know of keys: none of them proves anything then. Give it to those workers and to
// nobody else: it is never stored or logged. O(devices + names log devices).
std::string NewTransportKey(const std::vector<RegisteredDevice>& registered,
                            const std::vector<std::string>& names);

}  // namespace stagewright
