#include "common/base/json_object.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/base/text_file.h"

namespace stagewright {
namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 64;
constexpr int64_t kMostValues = 8'000'000;

absl::Status At(std::string_view text, size_t offset, const std::string& where,
                std::string_view what) {
  const size_t newline = offset == 0 ? std::string_view::npos : text.rfind('\n', offset - 1);
  const size_t column = newline == std::string_view::npos ? offset + 1 : offset - newline;
  return absl::InvalidArgumentError(absl::StrCat(where, ", line ", LineOfByte(text, offset),
                                                 ", column ", column, ": ", std::string(what)));
}

// Depth and number of values before anything is built.
absl::Status CheckSize(std::string_view text, const std::string& where) {
  int depth = 0;
  int64_t values = 1;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    quoted = c == '"';
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c == ',' || c == '{' || c == '[') ++values;
    if (depth > kDeepest) {
      return At(text, i, where, absl::StrCat("nested deeper than ", kDeepest, " levels"));
    }
    if (values > kMostValues) {
      return At(text, i, where, absl::StrCat("more than ", kMostValues, " values"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t LineOfByte(std::string_view text, size_t offset) {
  offset = std::min(offset, text.size());
  return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(offset), '\n');
}

size_t FindInvalidUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    const unsigned char lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || i + more >= text.size()) return i;
    // What the second byte may be rules out overlong forms, surrogates and too large code points.
    const unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (byte(i + 1) < low || byte(i + 1) > high) return i;
    for (int k = 2; k <= more; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return i;
    }
    i += 1 + more;
  }
  return std::string_view::npos;
}

absl::StatusOr<Json> ParseJson(std::string_view text, const std::string& where) {
  if (text.size() > kLargestTextFile) {
    return absl::InvalidArgumentError(absl::StrCat(where, " is larger than 64 MiB"));
  }
  const size_t bad = FindInvalidUtf8(text);
  if (bad != std::string_view::npos) return At(text, bad, where, "not UTF-8");
  RETURN_IF_ERROR(CheckSize(text, where));
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const size_t byte = error.byte > 0 ? error.byte - 1 : 0;
    return At(text, byte, where,
              byte >= text.size() ? "not JSON: the text ends too early" : "not JSON from here on");
  } catch (const Json::exception& error) {
    std::string what = error.what();  // "[json.exception.out_of_range.406] number overflow ..."
    what.erase(0, what.find(' ') + 1);
    return absl::InvalidArgumentError(absl::StrCat(where, " is not JSON: ", what));
  }
}

JsonObject::JsonObject(const Json& json, std::string path, absl::Status& status,
                       std::initializer_list<const char*> known)
    : json_(json), path_(std::move(path)), status_(status) {
  if (!json.is_object()) {
    Fail("", "is not an object");
    return;
  }
  if (known.size() == 0) return;
  for (const auto& [key, value] : json.items()) {
    const bool found = std::any_of(known.begin(), known.end(),
                                   [&key = key](const char* name) { return key == name; });
    if (!found) Fail(key, absl::StrCat("is not a known field (", absl::StrJoin(known, ", "), ")"));
  }
}

std::string JsonObject::Text(const char* key, const std::string* fallback) {
  const Json* value = Get(key, fallback != nullptr);
  if (value == nullptr) return fallback != nullptr ? *fallback : "";
  if (value->is_string()) return value->get<std::string>();
  Fail(key, "is not a text");
  return "";
}

double JsonObject::Real(const char* key, const double* fallback) {
  const Json* value = Get(key, fallback != nullptr);
  if (value == nullptr) return fallback != nullptr ? *fallback : 0;
  if (value->is_number()) return value->get<double>();
  Fail(key, "is not a number");
  return 0;
}

int64_t JsonObject::Integer(const char* key, const int64_t* fallback) {
  const Json* value = Get(key, fallback != nullptr);
  if (value == nullptr) return fallback != nullptr ? *fallback : 0;
  const double real = value->is_number() ? value->get<double>() : 0.5;
  if (std::floor(real) == real && std::fabs(real) < 9e18) {
    return value->is_number_float() ? static_cast<int64_t>(real) : value->get<int64_t>();
  }
  Fail(key, "is not an integer");
  return 0;
}

int32_t JsonObject::Count(const char* key, const int64_t* fallback) {
  const int64_t value = Integer(key, fallback);
  if (value >= std::numeric_limits<int32_t>::min() &&
      value <= std::numeric_limits<int32_t>::max()) {
    return static_cast<int32_t>(value);
  }
  Fail(key, absl::StrCat("is ", value, ", which is out of range"));
  return 0;
}

bool JsonObject::Flag(const char* key, bool fallback) {
  const Json* value = Get(key, true);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Fail(key, "is neither true nor false");
  return fallback;
}

const Json& JsonObject::Child(const char* key) {
  static const Json kEmptyObject = Json::object();
  const Json* value = Get(key, false);
  return value == nullptr ? kEmptyObject : *value;
}

const Json& JsonObject::Array(const char* key, bool optional) {
  static const Json kEmptyArray = Json::array();
  const Json* value = Get(key, optional);
  if (value == nullptr) return kEmptyArray;
  if (value->is_array()) return *value;
  Fail(key, "is not a list");
  return kEmptyArray;
}

std::string JsonObject::PathTo(std::string_view key) const {
  if (path_.empty()) return std::string(key);
  return key.empty() ? path_ : absl::StrCat(path_, ".", std::string(key));
}

void JsonObject::Fail(std::string_view key, std::string_view what) {
  if (!status_.ok()) return;
  const std::string path = PathTo(key);
  status_ = absl::InvalidArgumentError(
      absl::StrCat(path.empty() ? "the file" : path, " ", std::string(what)));
}

const Json* JsonObject::Get(const char* key, bool optional) {
  if (!json_.is_object()) return nullptr;
  const auto it = json_.find(key);
  if (it != json_.end()) return &*it;
  if (!optional) Fail(key, "is missing");
  return nullptr;
}

}  // namespace stagewright
