// Why a planner was not reached, in words that say what to do: gRPC tells what its libraries saw.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/channel/channel.h"

namespace stagewright {

// What gRPC said of a planner that was not reached over OpenChannel(address, security), and in
// brackets what that mostly means; as it was where that is not known.
std::string WithAdvice(absl::string_view said, const std::string& address,
                       const ChannelSecurity& security);

}  // namespace stagewright
