// stagewright-worker: offers this machine's devices to a planner and trains on them.
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/log/log_flags.h"
#include "worker_daemon/daemon/daemon.h"
#include "worker_daemon/device/host_memory.h"

namespace {

// Every file of a data set stays open, and the soft limit is often 1024.
void OpenAsManyFilesAsAllowed() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

// NCCL's communicators share a GPU: their kernels start in the order in which they are queued.
void SetNcclDefaults() { setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0); }

}  // namespace

int main(int argc, char** argv) {
  using stagewright::Log;
  using stagewright::LogLevel;
  stagewright::DaemonOptions options;
  stagewright::LogOptions log = {"stagewright-worker"};
  int64_t memory_mib = 0, memory_limit_mib = 0;
  CLI::App app("stagewright-worker: trains stages that a planner assigns");
  app.set_version_flag("--version", std::string("stagewright-worker ") + STAGEWRIGHT_VERSION);
  app.option_defaults()->always_capture_default();
  app.add_option("--planner", options.planner, "HOST:PORT of the planner");
  app.add_option("--name", options.name, "unique name of this worker (default: the host's name)");
  app.add_option("--devices", options.devices, "cpu:N, cuda:all, or a list like cuda:0,2");
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
  app.add_option("--device-transport", options.device_memory_way,
                 "how the memory of GPUs travels: auto (by NCCL where all devices of a job can), "
                 "nccl (or the job fails), host (through the machine's memory)")
      ->transform(CLI::CheckedTransformer(ways))
      ->default_str("auto");
  app.add_option("--host-address", options.host_address,
                 "name or address of this machine; workers with equal ones are planned to share it "
                 "(default: the host's name)");
  app.add_option("--metrics-listen", options.metrics_listen,
                 "address of /metrics, HOST:PORT (default: no metrics)");
  app.add_option("--work-dir", options.work_dir,
                 "directory to run in; relative paths of jobs start here");
  stagewright::AddLogFlags(app, log);
  CLI11_PARSE(app, argc, argv);
  stagewright::SetUpLog(log);
  options.memory_per_device = memory_mib * stagewright::kMiB;
  options.memory_limit = memory_limit_mib * stagewright::kMiB;

  SetNcclDefaults();  // Before any thread starts.
  stagewright::KeepFreedHostMemory();
  // Blocked before any thread starts, so that only sigwait below receives them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  // A file that may not grow is an error of the write, like a full disk, and no end of the process.
  signal(SIGXFSZ, SIG_IGN);
  OpenAsManyFilesAsAllowed();

  auto daemon = stagewright::Daemon::Start(options);
  if (!daemon.ok()) {
    Log(LogLevel::kError, daemon.status().message());
    return 1;
  }
  if (!(*daemon)->metrics_address().empty())
    Log(LogLevel::kInfo, absl::StrCat("metrics on ", (*daemon)->metrics_address()));
  int signal = 0;
  sigwait(&signals, &signal);
  Log(LogLevel::kInfo, "leaving");
  return 0;
}
