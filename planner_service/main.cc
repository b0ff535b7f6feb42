// stagewright-planner: the planning service.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "planner_service/service/server.h"

#ifndef STAGEWRIGHT_VERSION
#error "STAGEWRIGHT_VERSION comes from the build"
#endif

int main(int argc, char** argv) {
  stagewright::ServerOptions options;
  double worker_timeout_seconds = absl::ToDoubleSeconds(options.worker_timeout);
  CLI::App app("stagewright-planner: plans pipeline-parallel training and runs it on workers");
  app.set_version_flag("--version", std::string("stagewright-planner ") + STAGEWRIGHT_VERSION);
  app.option_defaults()->always_capture_default();
  app.add_option("--listen", options.listen,
                 "address of the gRPC service, HOST:PORT; port 0 picks one");
  app.add_option("--metrics-listen", options.metrics_listen,
                 "address of /metrics, HOST:PORT; empty for none");
  app.add_option("--state", options.state, "SQLite file that keeps jobs; made if absent");
  app.add_option("--planning-threads", options.planning_threads, "plans solved at once")
      ->check(CLI::Range(1, 1024));
  app.add_option("--planning-queue", options.planning_queue,
                 "plans that may wait; more are refused")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--worker-timeout", worker_timeout_seconds,
                 "seconds of silence after which a worker is lost")
      ->check(CLI::Range(0.1, 86400.0));
  app.add_option("--max-message-mib", options.max_message_mib, "largest request accepted, in MiB")
      ->check(CLI::Range(1, 2047));
  stagewright::DoorOptions& door = options.door;
  app.add_option("--tls-cert", door.tls.certificate,
                 "certificate of the planner, a PEM file; it and the next two are looked at again "
                 "every 5 s");
  app.add_option("--tls-key", door.tls.key, "its key, a PEM file without a password");
  app.add_option("--tls-ca", door.tls.authorities,
                 "authorities, a PEM file: clients and workers must show certificates of theirs");
  app.add_option("--token-file", door.token_file,
                 "lines TOKEN ROLE USER [TENANT]; read again when it changes");
  app.add_flag("--insecure", door.insecure,
               "listen in the clear where other machines reach it: whoever does may do everything");
  app.add_option(
      "--audit-log", door.audit_log,
      "file that gets a line for every change that callers make (default: standard error, where "
      "callers must say who they are)");
  CLI11_PARSE(app, argc, argv);
  options.worker_timeout = absl::Seconds(worker_timeout_seconds);

  // Blocked before any thread starts, so that only sigwait below receives them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  auto server = stagewright::PlannerServer::Start(options);
  if (!server.ok()) {
    std::cerr << "stagewright-planner: " << server.status().message() << std::endl;
    return 1;
  }
  std::cerr << "stagewright-planner: listening on " << (*server)->address();
  if (!(*server)->metrics_address().empty())
    std::cerr << ", metrics on " << (*server)->metrics_address();
  std::cerr << std::endl << "stagewright-planner: " << (*server)->security() << std::endl;

  int signal = 0;
  sigwait(&signals, &signal);
  std::cerr << "stagewright-planner: shutting down" << std::endl;
  (*server)->Shutdown(absl::Seconds(5));
  return 0;
}
