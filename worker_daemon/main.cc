// stagewright-worker: offers this machine's devices to a planner and trains on them.
#include <net/if.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/artifacts/artifact_flags.h"
#include "common/base/open_files.h"
#include "common/channel/grpc_log.h"
#include "common/config/command_line.h"
#include "common/config/config_command.h"
#include "common/log/log.h"
#include "common/log/log_flags.h"
#include "worker_daemon/daemon/daemon.h"
#include "worker_daemon/device/host_memory.h"

namespace {

constexpr char kProgram[] = "stagewright-worker";

// Where tensors of other workers come and go, in the words of the libraries that move them.
bool BindTransports(const std::string& interface) {
  if (if_nametoindex(interface.c_str()) == 0) return false;
  setenv("UCX_NET_DEVICES", interface.c_str(), /*overwrite=*/1);
  setenv("NCCL_SOCKET_IFNAME", ("=" + interface).c_str(), /*overwrite=*/1);
  return true;
}

// NCCL's communicators share a GPU: their kernels start in the order in which they are queued.
void SetNcclDefaults() { setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0); }

// Runs that hang, in a file system for one, end with the process so long after it is to leave.
constexpr std::chrono::seconds kEndWithin(10);

// The planner is to know within so long why a worker ends that cannot go on.
constexpr int kTellWithinSeconds = 10;

// Jobs leave in the time that is given, unless another signal comes.
void Drain(stagewright::Daemon& daemon, const sigset_t& signals, int seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  if (seconds == 0) return;
  daemon.BeginToLeave("its process is to end");
  stagewright::Log(stagewright::LogLevel::kInfo, "draining");
  const timespec moment = {0, 50'000'000};
  while (!daemon.MayLeave() && std::chrono::steady_clock::now() < deadline) {
    if (sigtimedwait(&signals, nullptr, &moment) > 0) return;
  }
}

// The process ends, whatever a run waits for.
[[noreturn]] void EndWithout(const std::string& what) {
  stagewright::Log(
      stagewright::LogLevel::kError,
      absl::StrCat("ends without ", what, ", which does not end: a file system may not answer"));
  _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  using stagewright::Log;
  using stagewright::LogLevel;
  stagewright::DaemonOptions options;
  std::string interface;
  stagewright::LogOptions log = {kProgram};
  int64_t memory_mib = 0, memory_limit_mib = 0;
  int drain_seconds = 30;
  CLI::App app("stagewright-worker: trains stages that a planner assigns");
  app.set_version_flag("--version", std::string("stagewright-worker ") + STAGEWRIGHT_VERSION);
  app.option_defaults()->always_capture_default();
  app.add_option("--planner", options.planner, "HOST:PORT of the planner");
  app.add_option("--name", options.name, "unique name of this worker (default: the host's name)");
  app.add_option("--devices", options.devices.spec, "cpu:N, cuda:all, or a list like cuda:0,2");
  app.add_option("--device-kind", options.devices.kind,
                 "plan with the figures of this kind (such as cpu-core, h100-80g), and with links "
                 "as assumed, so that plans are the same every time (default: all is measured)");
  app.add_option("--threads-per-device", options.threads_per_device,
                 "threads of one operator on a CPU device")
      ->check(CLI::Range(1, 1024));
  app.add_option("--memory-mib", memory_mib, "memory of each device; 0: what the machine has")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  app.add_option("--memory-limit-mib", memory_limit_mib,
                 "most memory of a job's tensors on a CPU device, beyond which the job fails; "
                 "0: what the machine has")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  const std::map<std::string, stagewright::DeviceMemoryWay> ways = {
      {"auto", stagewright::DeviceMemoryWay::kAuto},
      {"nccl", stagewright::DeviceMemoryWay::kNccl},
      {"host", stagewright::DeviceMemoryWay::kHost}};
  app.add_option_function<std::string>(
         "--device-transport",
         [&](const std::string& way) { options.device_memory_way = ways.at(way); },
         "how the memory of GPUs travels: auto (by NCCL where all devices of a job can), "
         "nccl (or the job fails), host (through the machine's memory)")
      ->check(CLI::IsMember({"auto", "nccl", "host"}))
      ->default_str("auto");
  app.add_option("--host-address", options.host_address,
                 "name or address of this machine; workers with equal ones are planned to share it "
                 "(default: the host's name)");
  app.add_option("--metrics-listen", options.metrics_listen,
                 "address of /metrics, HOST:PORT (default: no metrics)");
  app.add_option("--drain-timeout", drain_seconds,
                 "on SIGTERM, seconds in which jobs are to save their state and leave; 0: none")
      ->check(CLI::Range(0, 86400));
  app.add_option("--work-dir", options.work_dir,
                 "directory to run in; relative paths of jobs start here");
  app.add_option("--transport-interface", interface,
                 "network interface that tensors travel over, which is not encrypted (default: all "
                 "that lead to other workers)");
  app.add_option("--data-root", options.roots.data,
                 "directory outside of which jobs read nothing, but for --output-root (default: "
                 "they read what this worker can)");
  app.add_option("--output-root", options.roots.output,
                 "directory outside of which jobs write nothing (default: they write where this "
                 "worker can)");
  stagewright::AddArtifactStoreFlag(app, options.artifacts.store);
  stagewright::AddArtifactCacheFlags(app, options.artifacts);
  stagewright::ChannelSecurity& security = options.security;
  app.add_option("--tls-cert", security.tls.certificate,
                 "certificate of this worker, a PEM file; it and the next two are looked at again "
                 "every 5 s");
  app.add_option("--tls-key", security.tls.key, "its key, a PEM file without a password");
  app.add_option("--tls-ca", security.tls.authorities,
                 "authorities, a PEM file: the planner must show a certificate of theirs");
  app.add_option("--token-file", security.token_file, "file with this worker's token");
  app.add_flag("--insecure", security.insecure,
               "speak to a planner on another machine in the clear");
  stagewright::AddLogFlags(app, log);
  stagewright::Settings settings(app, {"STAGEWRIGHT_WORKER_"});
  const auto config =
      stagewright::AddConfigCommand(app, settings, kProgram, [&] { return CheckOptions(options); });
  const auto ends = stagewright::ParseCommandLine(app, settings, {kProgram, argc, argv});
  if (ends.has_value()) return *ends;
  stagewright::SetUpLog(log);
  stagewright::LogWhatGrpcSays();
  if (config.chosen()) return stagewright::AfterOutput(kProgram, config.run());
  if (const absl::Status wrong = settings.Check(); !wrong.ok()) {
    Log(LogLevel::kError, wrong.message());
    return 1;
  }
  for (const std::string& warning : settings.Warnings()) Log(LogLevel::kWarning, warning);
  options.devices.memory_per_device = memory_mib * stagewright::kMiB;
  options.memory_limit = memory_limit_mib * stagewright::kMiB;

  if (!interface.empty() && !BindTransports(interface)) {
    Log(LogLevel::kError, absl::StrCat("--transport-interface ", interface,
                                       ": there is no network interface of that name"));
    return 1;
  }
  // Before any thread starts.
  if (!ConfineTo(options.roots)) {
    Log(LogLevel::kWarning,
        "this system has no openat2 (Linux 5.6): whoever can swap links below --data-root and "
        "--output-root while jobs start can lead them out");
  }
  SetNcclDefaults();
  stagewright::KeepFreedHostMemory();
  // Blocked before any thread starts, so that only sigwait below receives them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  // Tells this thread that a device is of no use any more; does not end a drain, as others do.
  sigset_t awaited = signals;
  sigaddset(&awaited, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &awaited, nullptr);

  // A file that may not grow is an error of the write, like a full disk, and no end of the process.
  signal(SIGXFSZ, SIG_IGN);
  stagewright::OpenAsManyFilesAsAllowed();  // Every file of a data set stays open.

  options.on_fault = [] { kill(getpid(), SIGUSR1); };
  auto daemon = stagewright::Daemon::Start(options);
  if (!daemon.ok()) {
    Log(LogLevel::kError, daemon.status().message());
    return 1;
  }
  if (!(*daemon)->metrics_address().empty())
    Log(LogLevel::kInfo, absl::StrCat("metrics on ", (*daemon)->metrics_address()));
  int signal = 0;
  sigwait(&awaited, &signal);
  if (signal == SIGUSR1) drain_seconds = std::max(drain_seconds, kTellWithinSeconds);
  if (signal != SIGINT) Drain(**daemon, signals, drain_seconds);
  const bool faulty = !(*daemon)->Fault().ok();
  Log(LogLevel::kInfo, "leaving");
  std::thread([] {
    std::this_thread::sleep_for(2 * kEndWithin);
    EndWithout("a measurement");
  }).detach();
  (*daemon)->Stop();
  const auto deadline = std::chrono::steady_clock::now() + kEndWithin;
  while (!(*daemon)->Ending().empty()) {
    if (std::chrono::steady_clock::now() >= deadline) EndWithout((*daemon)->Ending());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (faulty) _exit(1);  // Whatever is freed on that device would fail, too.
  return 0;
}
