// What a program says when a signal ends it.
#pragma once

#include <string>

namespace stagewright::cli {

// While it lives, SIGINT and SIGTERM have `words` written to stderr, on a line of their own, before
// they end the program as they would without it. One at a time.
class LastWords {
 public:
  explicit LastWords(const std::string& words);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
};

}  // namespace stagewright::cli
