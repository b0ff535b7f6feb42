// The text that tokens and keys are made of (RFC 7515, RFC 7517), read in one way only: what two
// readers could understand differently is refused.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"

namespace stagewright {

// Base64 with - and _, without padding, as an encoder would write it; nothing for any other text.
std::optional<std::string> DecodeBase64Url(absl::string_view text);

// INVALID_ARGUMENT, beginning with `where`, unless the text is one JSON object in which, and in
// whose objects, no field is named twice. Errors of ParseJson.
absl::StatusOr<nlohmann::json> ParseUniqueObject(absl::string_view text, const std::string& where);

// A field that is a text; nothing if it is absent or something else.
std::optional<std::string> TextOf(const nlohmann::json& object, const char* field);

}  // namespace stagewright
