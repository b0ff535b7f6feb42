#include "common/log/log.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/one_line.h"
#include "nlohmann/json.hpp"

namespace stagewright {
namespace {

constexpr size_t kLongest = 1000;

struct Settings {
  absl::Mutex mutex;
  LogOptions options ABSL_GUARDED_BY(mutex);
  std::vector<const LogTap*> taps ABSL_GUARDED_BY(mutex);
};

// Never destroyed: threads log until the process ends.
Settings& ProcessSettings() {
  static auto* settings = new Settings();
  return *settings;
}

absl::string_view Cut(absl::string_view text) {
  if (text.size() <= kLongest) return text;
  size_t end = kLongest;
  while (end > 0 && (text[end] & 0xc0) == 0x80) --end;  // Whole characters only.
  return text.substr(0, end);
}

void AppendEscaped(absl::string_view text, bool quoted, std::string& out) {
  const absl::string_view shown = Cut(text);
  for (size_t i = 0; i < shown.size(); ++i) {
    if (shown[i] == '\n') {
      out += "\\n";
    } else if (const size_t control = ControlCharacterAt(shown, i); control > 0) {
      for (const char c : shown.substr(i, control))
        absl::StrAppend(&out, absl::StrFormat("\\x%02x", static_cast<unsigned char>(c)));
      i += control - 1;
    } else {
      if (quoted && (shown[i] == '"' || shown[i] == '\\')) out += '\\';
      out += shown[i];
    }
  }
  if (text.size() > kLongest) out += "...";
}

bool NeedsQuotes(absl::string_view value) {
  return value.find_first_of(" \"=\\") != absl::string_view::npos;
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

std::string TextLine(const LogLine& line) {
  std::string out =
      absl::StrCat(TimeText(line.time), " ", kLogLevelNames[static_cast<size_t>(line.level)], " ");
  if (!line.program.empty()) absl::StrAppend(&out, line.program, ": ");
  AppendEscaped(line.message, /*quoted=*/false, out);
  for (const LogField& field : line.fields) {
    if (field.value.empty()) continue;
    absl::StrAppend(&out, " ", field.key, "=");
    const bool quoted = NeedsQuotes(field.value);
    if (quoted) out += '"';
    AppendEscaped(field.value, quoted, out);
    if (quoted) out += '"';
  }
  return out + "\n";
}

std::string CutForJson(absl::string_view text) {
  return absl::StrCat(Cut(text), text.size() > kLongest ? "..." : "");
}

std::string JsonLine(const LogLine& line) {
  nlohmann::ordered_json json;
  json["time"] = TimeText(line.time);
  json["level"] = std::string(kLogLevelNames[static_cast<size_t>(line.level)]);
  if (!line.program.empty()) json["program"] = line.program;
  json["message"] = CutForJson(line.message);
  for (const LogField& field : line.fields) {
    if (field.value.empty()) continue;
    // A number that JSON has no form for, such as nan, goes as text.
    const auto number = field.number
                            ? nlohmann::ordered_json::parse(field.value, nullptr, false)
                            : nlohmann::ordered_json(nlohmann::ordered_json::value_t::discarded);
    if (number.is_number()) {
      json[field.key] = number;
    } else {
      json[field.key] = CutForJson(field.value);
    }
  }
  // In ASCII: what a terminal would obey is written out, too.
  return json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// A log that cannot be written must not end a program.
void WriteAll(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

std::string FormatLine(const LogLine& line, LogFormat format) {
  return format == LogFormat::kJson ? JsonLine(line) : TextLine(line);
}

void SetUpLog(LogOptions options) {
  Settings& settings = ProcessSettings();
  absl::MutexLock lock(&settings.mutex);
  settings.options = std::move(options);
}

void WriteLine(LogLine line) {
  Settings& settings = ProcessSettings();
  LogFormat format = LogFormat::kText;
  {
    absl::MutexLock lock(&settings.mutex);
    if (line.level < settings.options.level) return;
    line.program = settings.options.program;
    format = settings.options.format;
    for (const LogTap* tap : settings.taps) tap->see_(line);
  }
  WriteAll(FormatLine(line, format));
}

void Log(LogLevel level, absl::string_view message, std::initializer_list<LogField> fields) {
  WriteLine({absl::Now(), level, "", std::string(message), fields});
}

LogTap::LogTap(std::function<void(const LogLine&)> see) : see_(std::move(see)) {
  Settings& settings = ProcessSettings();
  absl::MutexLock lock(&settings.mutex);
  settings.taps.push_back(this);
}

LogTap::~LogTap() {
  Settings& settings = ProcessSettings();
  absl::MutexLock lock(&settings.mutex);
  std::erase(settings.taps, this);
}

}  // namespace stagewright
