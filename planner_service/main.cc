// stagewright-planner: the planning service.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "planner_service/election/elected_server.h"
#include "planner_service/service/server.h"
#include "planner_service/state/state_command.h"
#include "planner_service/store/etcd/etcd_client.h"

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
  stagewright::ElectionOptions election;
  double lease_seconds = absl::ToDoubleSeconds(election.lease);
  app.add_option("--store", election.store,
                 "what keeps jobs instead: etcd://HOST:PORT[,HOST:PORT...][/PREFIX], for several "
                 "planners of which one leads, or sqlite:FILE")
      ->excludes("--state");
  app.add_option("--advertise", election.advertise,
                 "HOST:PORT at which the other planners of an etcd reach this one (default: "
                 "--listen)");
  app.add_option("--leader-lease", lease_seconds,
                 "seconds of silence after which another planner leads")
      ->check(CLI::Range(2.0, 3600.0));
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
  const stagewright::StateCommand state = stagewright::AddStateCommand(app);
  CLI11_PARSE(app, argc, argv);
  if (state.chosen()) return state.run();
  options.worker_timeout = absl::Seconds(worker_timeout_seconds);
  election.lease = absl::Seconds(lease_seconds);
  election.log = [](const std::string& line) {
    std::cerr << "stagewright-planner: " << line << std::endl;
  };

  signal(SIGXFSZ, SIG_IGN);  // A file that may not grow is an error like a full disk.

  // Blocked before any thread starts, so that only sigwait below receives them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const bool elected = stagewright::IsEtcdPlace(election.store);
  if (absl::string_view(election.store).substr(0, 7) == "sqlite:") {
    options.state = election.store.substr(7);
  } else if (!election.store.empty() && !elected) {
    std::cerr << "stagewright-planner: --store \"" << election.store
              << "\": expected etcd://... or sqlite:FILE" << std::endl;
    return 1;
  }
  auto server = elected ? stagewright::StartElected(options, election)
                        : stagewright::PlannerServer::Start(options);
  if (!server.ok()) {
    std::cerr << "stagewright-planner: " << server.status().message() << std::endl;
    return 1;
  }
  std::cerr << "stagewright-planner: listening on " << (*server)->address();
  if (!(*server)->metrics_address().empty())
    std::cerr << ", metrics on " << (*server)->metrics_address();
  std::cerr << std::endl;
  for (const std::string& note : (*server)->notes())
    std::cerr << "stagewright-planner: " << note << std::endl;

  int received = 0;
  sigwait(&signals, &received);
  std::cerr << "stagewright-planner: shutting down" << std::endl;
  (*server)->Shutdown(absl::Seconds(5));
  return 0;
}
