// Lines of a program's log: time, level, message, and what it is about as keys with values.
//
// What a line looks like is the process's business, not the caller's: SetUpLog is called once, when
// the program starts.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace stagewright {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

inline constexpr absl::string_view kLogLevelNames[] = {"debug", "info", "warning", "error"};
inline constexpr absl::string_view kLogFormatNames[] = {"text", "json"};

// "job" = "jobs/7". Keys are lower-case words; a field without a value is left out of the line.
struct LogField {
  LogField(absl::string_view name, absl::string_view text) : key(name), value(text) {}
  LogField(absl::string_view name, const std::string& text) : key(name), value(text) {}
  LogField(absl::string_view name, const char* text) : key(name), value(text) {}
  template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
  LogField(absl::string_view name, Number count)
      : key(name), value(absl::StrCat(count)), number(true) {}

  std::string key, value;
  bool number = false;  // Not quoted in JSON.
};

struct LogLine {
  absl::Time time;
  LogLevel level = LogLevel::kInfo;
  std::string program;  // "stagewright-planner"
  std::string message;
  std::vector<LogField> fields;
};

// One line with its end, whatever strangers wrote into it: control characters are escaped, and
// texts beyond 1,000 bytes are cut.
//
//   2026-11-22T03:14:15.926Z warning stagewright-planner: worker lost job=jobs/7 worker=w0
//   {"time":"2026-11-22T03:14:15.926Z","level":"warning","program":"stagewright-planner",...}
std::string FormatLine(const LogLine& line, LogFormat format);

struct LogOptions {
  std::string program;
  LogFormat format = LogFormat::kText;
  LogLevel level = LogLevel::kInfo;  // Lines below it are not written.
};

// Until then: text, without a program, from kInfo.
void SetUpLog(LogOptions options);

// Writes a line to standard error in one piece, with the program's name. Thread-safe.
void WriteLine(LogLine line);
// One that was logged now.
void Log(LogLevel level, absl::string_view message, std::initializer_list<LogField> fields = {});

// Sees the lines that this process writes, from its construction until its destruction has
// returned. Thread-safe.
class LogTap {
 public:
  // `see` is called by the threads that log, one at a time: it must neither block nor log.
  explicit LogTap(std::function<void(const LogLine&)> see);
  ~LogTap();
  LogTap(const LogTap&) = delete;
  LogTap& operator=(const LogTap&) = delete;

 private:
  friend void WriteLine(LogLine line);

  const std::function<void(const LogLine&)> see_;
};

}  // namespace stagewright
