// Reading JSON files with one clear error: the first thing wrong is kept, with the path that leads
// to it, and readers go on with defaults, so that they need no check per field.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "nlohmann/json.hpp"

namespace stagewright {

// Parses `text`; INVALID_ARGUMENT, starting with `where`, if it is larger than 64 MiB, not UTF-8,
// nested deeper than 64 levels, holds more than 8 million values or is not JSON (with line and
// column). Memory is at most some 40 times the text.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const std::string& where);

// The 1-based line of byte `offset`.
int64_t LineOfByte(std::string_view text, size_t offset);

// The first byte that does not belong to a UTF-8 sequence; npos if there is none. Surrogates,
// overlong forms and code points beyond U+10FFFF do not belong.
size_t FindInvalidUtf8(std::string_view text);

// One JSON object with the path that leads to it. `json` and `status` outlive it.
class JsonObject {
 public:
  // With a list of known fields any other is an error, so that a typing mistake never silently
  // becomes a default.
  JsonObject(const nlohmann::json& json, std::string path, absl::Status& status,
             std::initializer_list<const char*> known = {});

  // Each fails unless the field is there and of its kind; with a fallback it may be absent.
  std::string Text(const char* key, const std::string* fallback = nullptr);
  double Real(const char* key, const double* fallback = nullptr);
  int64_t Integer(const char* key, const int64_t* fallback = nullptr);  // 16e9 is one, too.
  int32_t Count(const char* key, const int64_t* fallback = nullptr);    // Fits 32 bits.
  bool Flag(const char* key, bool fallback);
  const nlohmann::json& Child(const char* key);  // An empty object where absent.
  const nlohmann::json& Array(const char* key, bool optional = false);

  bool Has(const char* key) const { return json_.is_object() && json_.contains(key); }
  std::string PathTo(std::string_view key) const;
  // "PATH.KEY WHAT", unless something failed before.
  void Fail(std::string_view key, std::string_view what);

 private:
  const nlohmann::json* Get(const char* key, bool optional);

  const nlohmann::json& json_;
  const std::string path_;
  absl::Status& status_;
};

}  // namespace stagewright
