// Which peers a transport did not reach when it connected, beside the error that says so for
// people: a payload of the status, so that whoever passes the error on passes them on, too.
#pragma once

#include <set>

#include "absl/status/status.h"

namespace stagewright {

// The error, with the devices of these peers; an OK status stays as it is. O(devices log devices).
absl::Status WithUnreached(absl::Status status, const std::set<int>& devices);

// Those of WithUnreached; none without.
std::set<int> UnreachedOf(const absl::Status& status);

}  // namespace stagewright
