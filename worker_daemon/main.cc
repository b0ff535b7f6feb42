// stagewright-worker: offers this machine's devices to a planner and trains on them.
#include <net/if.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "worker_daemon/daemon/daemon.h"
#include "worker_daemon/device/host_memory.h"

namespace {

// Where tensors of other workers come and go, in the words of the libraries that move them.
bool BindTransports(const std::string& interface) {
  if (if_nametoindex(interface.c_str()) == 0) return false;
  setenv("UCX_NET_DEVICES", interface.c_str(), /*overwrite=*/1);
  setenv("NCCL_SOCKET_IFNAME", ("=" + interface).c_str(), /*overwrite=*/1);
  return true;
}

// Every file of a data set stays open, and the soft limit is often 1024.
void OpenAsManyFilesAsAllowed() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace

int main(int argc, char** argv) {
  stagewright::DaemonOptions options;
  std::string interface;
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
  app.add_option("--host-address", options.host_address,
                 "name or address of this machine; workers with equal ones are planned to share it "
                 "(default: the host's name)");
  app.add_option("--metrics-listen", options.metrics_listen,
                 "address of /metrics, HOST:PORT (default: no metrics)");
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
  CLI11_PARSE(app, argc, argv);
  options.memory_per_device = memory_mib * stagewright::kMiB;
  options.memory_limit = memory_limit_mib * stagewright::kMiB;

  if (!interface.empty() && !BindTransports(interface)) {
    std::cerr << "stagewright-worker: --transport-interface "
              << interface << ": there is no network interface of that name" << std::endl;
    return 1;
  }
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
    std::cerr << "stagewright-worker: " << daemon.status().message() << std::endl;
    return 1;
  }
  if (!(*daemon)->metrics_address().empty()) {
    std::cerr << "stagewright-worker: metrics on " << (*daemon)->metrics_address() << std::endl;
  }
  int signal = 0;
  sigwait(&signals, &signal);
  std::cerr << "stagewright-worker: leaving" << std::endl;
  return 0;
}
