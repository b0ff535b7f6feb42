#include "common/wire/log_proto.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "common/base/json_object.h"
#include "common/base/one_line.h"

namespace stagewright {
namespace {

// Bytes of a key, which the limits of the wire know as well.
constexpr size_t kMostKeyBytes = 128;

std::string Clean(absl::string_view text) {
  std::string clean(text);
  for (size_t bad = 0; (bad = FindInvalidUtf8(clean)) != std::string::npos;) clean[bad] = '?';
  for (size_t i = 0; i < clean.size(); ++i) {
    if (clean[i] == '\n' || clean[i] == '\t' || clean[i] == '\r') continue;
    if (const size_t control = ControlCharacterAt(clean, i); control > 0)
      clean.replace(i, control, "?");
  }
  return clean;
}

// As much of the text as `room` has, which becomes less.
std::string Take(absl::string_view text, size_t& room) {
  constexpr absl::string_view kCut = "...";
  // A byte of what is no UTF-8 becomes one byte: nothing beyond can come in.
  std::string clean = Clean(text.substr(0, room + 1));
  if (clean.size() > room) {
    size_t end = room - std::min(room, kCut.size());
    while (end > 0 && (clean[end] & 0xc0) == 0x80) --end;  // Whole characters only.
    clean.resize(end);
    if (room >= kCut.size()) clean += std::string(kCut);
  }
  room -= clean.size();
  return clean;
}

bool StandsBeside(absl::string_view key) { return key == "job" || key == "generation"; }

// What the line says of itself: no field may say otherwise.
bool IsLines(absl::string_view key) {
  return StandsBeside(key) || key == "time" || key == "level" || key == "program" ||
         key == "message";
}

bool IsKey(absl::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '_';
  });
}

}  // namespace

v1::JobLogLine ToProto(const LogLine& line) {
  v1::JobLogLine proto;
  size_t room = kMostLineBytes;
  proto.set_time_ns(absl::ToUnixNanos(line.time));
  proto.set_level(static_cast<v1::LogLevel>(static_cast<int>(line.level) + v1::LOG_LEVEL_DEBUG));
  proto.set_message(Take(line.message, room));
  for (const LogField& field : line.fields) {
    if (field.value.empty() || StandsBeside(field.key)) continue;
    if (field.key.size() > std::min(room, kMostKeyBytes) || proto.fields_size() == kMostLineFields)
      break;
    v1::LogField* added = proto.add_fields();
    added->set_key(Take(field.key, room));
    added->set_value(Take(field.value, room));
    added->set_number(field.number);
  }
  return proto;
}

LogLine FromProto(const v1::JobLogLine& line) {
  LogLine out;
  out.time = absl::FromUnixNanos(line.time_ns());
  const bool known = line.level() >= v1::LOG_LEVEL_DEBUG && line.level() <= v1::LOG_LEVEL_ERROR;
  if (known) out.level = static_cast<LogLevel>(line.level() - v1::LOG_LEVEL_DEBUG);
  out.program = line.worker().empty() ? "stagewright-planner" : "stagewright-worker";
  out.message = line.message();
  if (!line.worker().empty()) out.fields.emplace_back("worker", line.worker());
  if (line.generation() > 0) out.fields.emplace_back("generation", line.generation());
  for (const v1::LogField& field : line.fields()) {
    if (IsLines(field.key()) || !IsKey(field.key())) continue;
    if (field.key() == "worker" && !line.worker().empty()) continue;
    LogField& added = out.fields.emplace_back(field.key(), field.value());
    added.number = field.number();
  }
  return out;
}

}  // namespace stagewright
