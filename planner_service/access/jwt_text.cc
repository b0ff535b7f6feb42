#include "planner_service/access/jwt_text.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/json_object.h"

namespace stagewright {
namespace {

using Json = nlohmann::json;

// The text is known to be JSON.
bool NamesAFieldTwice(absl::string_view text) {
  bool twice = false;
  std::vector<std::set<std::string>> open;
  const auto look = [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key)
      twice |= !open.back().insert(parsed.get<std::string>()).second;
    return true;
  };
  Json::parse(text.begin(), text.end(), look).clear();
  return twice;
}

}  // namespace

std::optional<std::string> DecodeBase64Url(absl::string_view text) {
  std::string bytes;
  if (!absl::WebSafeBase64Unescape(text, &bytes)) return std::nullopt;
  // Padding, white space, and bits beyond the last byte.
  if (absl::WebSafeBase64Escape(bytes) != text) return std::nullopt;
  return bytes;
}

absl::StatusOr<Json> ParseUniqueObject(absl::string_view text, const std::string& where) {
  ASSIGN_OR_RETURN(Json json, ParseJson({text.data(), text.size()}, where));
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat(where, " is no object"));
  if (NamesAFieldTwice(text))
    return absl::InvalidArgumentError(absl::StrCat(where, " names a field twice"));
  return json;
}

std::optional<std::string> TextOf(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

}  // namespace stagewright
