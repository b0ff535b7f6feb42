// What every fuzz target defines: libFuzzer calls it with mutated bytes, replay_main.cc with the
// files of a corpus. It returns 0, and aborts where a promise is broken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/status/status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace stagewright::fuzz {

inline std::string_view Text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline void Fail(const std::string& what) {
  std::fprintf(stderr, "finding: %s\n", what.c_str());
  std::abort();
}

// A refusal is one line, and never an internal error.
inline void CheckRefusal(const absl::Status& status) {
  if (status.ok()) return;
  const std::string message(status.message());
  if (message.empty()) Fail("an error without a message");
  if (message.find('\n') != std::string::npos) Fail("an error of several lines: " + message);
  if (message.size() > 4096) Fail("an error of " + std::to_string(message.size()) + " bytes");
  if (status.code() == absl::StatusCode::kInternal || status.code() == absl::StatusCode::kUnknown) {
    Fail("an internal error: " + message);
  }
}

}  // namespace stagewright::fuzz
