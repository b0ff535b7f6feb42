// A program that this one starts: it dies with this one, and how it ended can be said.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/status.h"

namespace stagewright::cli {

class ChildProcess {
 public:
  struct Options {
    std::string name;                      // For people.
    std::vector<std::string> arguments;    // The program first: a path, or a name found on PATH.
    std::vector<std::string> environment;  // NAME=VALUE, in place of what this program has.
    // The file that its output goes to, anew. With one, it is a process in the background: it has
    // no input and no part in the terminal's Ctrl-C. Without one, it has this program's terminal.
    std::string log;
  };

  // NOT_FOUND if there is no such program, else FAILED_PRECONDITION, with the reason.
  static absl::StatusOr<ChildProcess> Start(Options options);
  // Kills it if it still runs.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  const std::string& name() const { return options_.name; }
  // What it has written so far; empty without a log.
  std::string Log() const;
  // Its last lines, at most `lines`, each indented.
  std::string EndOfLog(int lines) const;

  bool Running();
  // Once it has ended: its exit status, or 128 + the signal that killed it, as shells have it.
  int exit_code() const;
  // "ended with exit status 1", "was killed by signal 9 (Killed)".
  std::string HowItEnded() const;

  void Signal(int signal);
  // SIGKILL to what has not ended after `patience`.
  void AwaitEnd(absl::Duration patience);

 private:
  ChildProcess(Options options, pid_t pid);

  Options options_;
  pid_t pid_;
  std::optional<int> status_;  // As of waitpid, once it has ended.
};

}  // namespace stagewright::cli
