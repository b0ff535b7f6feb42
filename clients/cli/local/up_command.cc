#include "clients/cli/local/up_command.h"

#include <signal.h>
#include <time.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/local/local_cluster.h"

namespace stagewright::cli {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(100);
constexpr absl::Duration kCommandPatience = absl::Seconds(5);

struct UpFlags {
  LocalClusterOptions cluster;
  std::string state;
  std::vector<std::string> command;
};

// The signals that ask this program to end: held back, to be asked for.
class EndSignals {
 public:
  // Before any thread starts: threads inherit what is held back.
  EndSignals() {
    sigemptyset(&signals_);
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }

  // The signal that comes within `patience`, or 0. `from_terminal`: Ctrl-C, which the terminal has
  // sent to a command in the foreground, too.
  int Await(absl::Duration patience, bool* from_terminal = nullptr) const {
    const timespec time = absl::ToTimespec(patience);
    siginfo_t info = {};
    const int signal = sigtimedwait(&signals_, &info, &time);
    if (from_terminal != nullptr) *from_terminal = signal > 0 && info.si_code == SI_KERNEL;
    return signal > 0 ? signal : 0;
  }

 private:
  sigset_t signals_;
};

// The directory of --state, made if absent, or a temporary one.
absl::StatusOr<std::string> MakeDirectory(const std::string& state) {
  std::error_code error;
  if (!state.empty()) {
    std::filesystem::create_directories(state, error);
    if (!error) return state;
    return absl::FailedPreconditionError(absl::StrCat("--state ", state, ": ", error.message()));
  }
  std::string path = std::filesystem::temp_directory_path(error) / "stagewright-up-XXXXXX";
  if (!error && mkdtemp(path.data()) != nullptr) return path;
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": no temporary directory can be made there: set TMPDIR or --state"));
}

int AwaitSignal(LocalCluster& cluster, const EndSignals& signals) {
  while (signals.Await(kPollInterval) == 0) {
    if (absl::Status status = cluster.Check(); !status.ok()) return Report(status);
  }
  return kSuccess;
}

// The command finds this very program and those beside it before others of the same names.
void PutThisProgramFirst() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const char* path = std::getenv("PATH");
  if (error) return;
  setenv("PATH",
         absl::StrCat(self.parent_path().string(), ":", path == nullptr ? "" : path).c_str(),
         /*overwrite=*/1);
}

// Its exit status. A signal goes on to the command; the second one kills it.
int RunCommand(const std::vector<std::string>& words, LocalCluster& cluster,
               const EndSignals& signals) {
  auto command = ChildProcess::Start({.name = words[0],
                                      .arguments = words,
                                      .environment = {"STAGEWRIGHT_PLANNER=" + cluster.address()}});
  if (!command.ok()) return Report(command.status());
  bool told = false;
  while (command->Running()) {
    if (absl::Status status = cluster.Check(); !status.ok()) {
      command->Signal(SIGTERM);
      command->AwaitEnd(kCommandPatience);
      return Report(status);
    }
    bool from_terminal = false;
    const int signal = signals.Await(kPollInterval, &from_terminal);
    if (signal == 0) continue;
    if (told || !from_terminal) command->Signal(told ? SIGKILL : signal);
    told = true;
  }
  return command->exit_code();
}

void SayHowToUse(const LocalCluster& cluster, const std::string& directory,
                 const std::string& usual_address) {
  if (cluster.address() != usual_address) {
    std::cout << "export STAGEWRIGHT_PLANNER=" << cluster.address() << "\n";
  }
  std::cout << "stagewright submit GRAPH --weights W --data D --out DIR --mini-batch N --epochs E "
               "--lr R --watch\n"
            << "Logs are in " << directory << "; Ctrl-C ends planner and workers." << std::endl;
}

int RunUp(UpFlags flags) {
  // The address where the other commands look, unless the one command that is run gets told.
  const std::string usual_address = Globals().planner_address;
  if (flags.cluster.listen.empty()) {
    flags.cluster.listen = flags.command.empty() ? usual_address : "127.0.0.1:0";
  }
  const EndSignals signals;
  PutThisProgramFirst();
  const auto directory = MakeDirectory(flags.state);
  if (!directory.ok()) return Report(directory.status());
  const absl::Cleanup remove_directory = [&] {
    std::error_code ignored;
    if (flags.state.empty()) std::filesystem::remove_all(*directory, ignored);
  };
  flags.cluster.directory = *directory;
  int ended_by = 0;
  auto cluster = LocalCluster::Start(flags.cluster, [&](absl::Duration time) {
    ended_by = signals.Await(time);
    return ended_by == 0;
  });
  if (ended_by != 0) return 128 + ended_by;
  if (!cluster.ok()) return Report(cluster.status());
  std::cerr << "stagewright: a planner and " << flags.cluster.workers
            << (flags.cluster.workers == 1 ? " worker" : " workers") << " at "
            << (*cluster)->address() << std::endl;
  if (!flags.command.empty()) return RunCommand(flags.command, **cluster, signals);
  SayHowToUse(**cluster, *directory, usual_address);
  return AwaitSignal(**cluster, signals);
}

}  // namespace

void AddUpCommand(CLI::App& app, Globals& globals) {
  auto flags = std::make_shared<UpFlags>();
  CLI::App* up = app.add_subcommand("up", "run a planner and workers on this machine until Ctrl-C");
  up->add_option("--workers", flags->cluster.workers, "how many, each with a CPU device")
      ->check(CLI::Range(1, 1024))
      ->required();
  up->add_option("--threads", flags->cluster.threads_per_worker, "of each worker")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  up->add_option("--listen", flags->cluster.listen,
                 "HOST:PORT of the planner; port 0 picks one (default: 127.0.0.1:7070; with "
                 "COMMAND a free port)");
  up->add_option("--state", flags->state,
                 "directory that keeps jobs and logs (default: a temporary one)");
  up->add_option("command", flags->command,
                 "after --: run this, with the planner's address in STAGEWRIGHT_PLANNER, then end; "
                 "its exit status is the result");
  up->callback([flags, &globals] { globals.exit_code = RunUp(*flags); });
}

}  // namespace stagewright::cli
