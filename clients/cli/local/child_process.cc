#include "clients/cli/local/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/text_file.h"
#include "common/clock/steady_now.h"

namespace stagewright::cli {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(20);

std::vector<std::string> MergedEnvironment(const std::vector<std::string>& changes) {
  std::vector<std::string> merged = changes;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string name(*variable,
                           std::min(std::strlen(*variable), std::strcspn(*variable, "=")));
    const bool changed = std::any_of(
        changes.begin(), changes.end(),
        [&](const std::string& change) { return absl::StartsWith(change, name + "="); });
    if (!changed) merged.emplace_back(*variable);
  }
  return merged;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Between fork and exec: calls only what is safe where other threads may have held locks.
[[noreturn]] void Become(char** arguments, char** environment, const char* log, pid_t parent,
                         int report) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // It had died before it could be noticed.
  bool ready = true;
  if (log != nullptr) {
    setpgid(0, 0);
    const int in = open("/dev/null", O_RDONLY);
    const int out = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
    ready = in >= 0 && out >= 0 && dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
            dup2(out, STDERR_FILENO) >= 0;
  }
  if (ready) execvpe(arguments[0], arguments, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(report, &error, sizeof(error));
  _exit(127);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(Options options) {
  std::vector<std::string> environment = MergedEnvironment(options.environment);
  const std::vector<char*> environment_pointers = Pointers(environment);
  const std::vector<char*> argument_pointers = Pointers(options.arguments);
  const char* log = options.log.empty() ? nullptr : options.log.c_str();
  // Closed by a successful exec; otherwise it brings the reason.
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(options.name, ": ", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    Become(const_cast<char**>(argument_pointers.data()),
           const_cast<char**>(environment_pointers.data()), log, parent, report[1]);
  }
  int error = pid < 0 ? errno : 0;
  close(report[1]);
  if (pid > 0 && read(report[0], &error, sizeof(error)) > 0) waitpid(pid, nullptr, 0);
  close(report[0]);
  if (error != 0) {
    const std::string message =
        absl::StrCat("cannot start ", options.arguments[0], ": ", std::strerror(error));
    return error == ENOENT ? absl::NotFoundError(message) : absl::FailedPreconditionError(message);
  }
  return ChildProcess(std::move(options), pid);
}

ChildProcess::ChildProcess(Options options, pid_t pid) : options_(std::move(options)), pid_(pid) {}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : options_(std::move(other.options_)), pid_(other.pid_), status_(other.status_) {
  other.status_ = 0;  // Nothing of its own is left to kill.
}

ChildProcess::~ChildProcess() { AwaitEnd(absl::ZeroDuration()); }

std::string ChildProcess::Log() const {
  return options_.log.empty() ? "" : ReadTextFile(options_.log).value_or("");
}

std::string ChildProcess::EndOfLog(int lines) const {
  const std::string log = Log();
  std::vector<std::string> all = absl::StrSplit(absl::StripSuffix(log, "\n"), '\n');
  if (log.empty()) all = {"(it has written nothing)"};
  const auto first = all.end() - std::min<ptrdiff_t>(lines, all.size());
  return absl::StrCat("  ", absl::StrJoin(first, all.end(), "\n  "));
}

bool ChildProcess::Running() {
  int status = 0;
  if (!status_.has_value() && waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return !status_.has_value();
}

int ChildProcess::exit_code() const {
  return WIFSIGNALED(*status_) ? 128 + WTERMSIG(*status_) : WEXITSTATUS(*status_);
}

std::string ChildProcess::HowItEnded() const {
  if (!WIFSIGNALED(*status_)) return absl::StrCat("ended with exit status ", exit_code());
  const int signal = WTERMSIG(*status_);
  return absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")");
}

void ChildProcess::Signal(int signal) {
  if (Running()) kill(pid_, signal);
}

void ChildProcess::AwaitEnd(absl::Duration patience) {
  const absl::Time deadline = SteadyNow() + patience;
  while (Running() && SteadyNow() < deadline) absl::SleepFor(kPollInterval);
  Signal(SIGKILL);
  while (Running()) absl::SleepFor(kPollInterval);
}

}  // namespace stagewright::cli
