#include "clients/cli/last_words.h"

#include <signal.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace stagewright::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

std::string said;  // Not changed while a handler may read it.

// Calls only what a signal handler may call. The signal is sent again, with nobody to handle it, so
// that a shell sees what ended the program.
void Say(int signal) {
  const ssize_t ignored = write(STDERR_FILENO, said.data(), said.size());
  static_cast<void>(ignored);
  raise(signal);
}

}  // namespace

LastWords::LastWords(const std::string& words) {
  // Whatever progress stands there is overwritten.
  said = absl::StrCat(isatty(STDERR_FILENO) != 0 ? "\r\033[K" : "", words, "\n");
  struct sigaction action = {};
  action.sa_handler = Say;
  action.sa_flags = SA_RESETHAND;
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

LastWords::~LastWords() {
  for (const int signal : kSignals) ::signal(signal, SIG_DFL);
}

}  // namespace stagewright::cli
