// How long texts and lists from the wire may be. The one table is in limits.cc; docs/security.md
// shows it.
#pragma once

#include <google/protobuf/message.h>

#include "common/base/status.h"

namespace stagewright {

// INVALID_ARGUMENT names the field ("spec.graph.nodes[3].name"), for programs, too
// (error_details.h), and the limit, unless every text and list of the message, and of those within
// it, is as short as it may be, and no text but what people are told has control characters.
// O(size).
absl::Status CheckLimits(const google::protobuf::Message& message);

}  // namespace stagewright
