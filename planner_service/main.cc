// stagewright-planner: the planning service.
#include <signal.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/open_files.h"
#include "common/channel/grpc_log.h"
#include "common/config/command_line.h"
#include "common/config/config_command.h"
#include "common/config/number_checks.h"
#include "common/log/log.h"
#include "common/log/log_flags.h"
#include "planner_service/election/elected_server.h"
#include "planner_service/queue/parse_quotas.h"
#include "planner_service/service/server.h"
#include "planner_service/state/state_command.h"
#include "planner_service/store/etcd/etcd_client.h"

#ifndef STAGEWRIGHT_VERSION
#error "STAGEWRIGHT_VERSION comes from the build"
#endif

namespace stagewright {
namespace {

constexpr char kProgram[] = "stagewright-planner";

// What flags, environment and file say.
struct Flags {
  ServerOptions options;
  ElectionOptions election;
  double worker_timeout_seconds = absl::ToDoubleSeconds(options.worker_timeout);
  double lease_seconds = absl::ToDoubleSeconds(election.lease);
  std::vector<std::string> owner_quotas, tenant_quotas;

  bool elected() const { return IsEtcdPlace(election.store); }
};

void AddPlaceFlags(CLI::App& app, Flags& flags) {
  app.add_option("--listen", flags.options.listen,
                 "address of the gRPC service, HOST:PORT; port 0 picks one");
  app.add_option("--worker-listen", flags.options.worker_listen,
                 "address of workers' streams, HOST:PORT, which then come in nowhere else "
                 "(default: that of --listen)");
  app.add_option("--metrics-listen", flags.options.metrics_listen,
                 "address of /metrics, HOST:PORT; empty for none");
  app.add_option("--state", flags.options.state, "SQLite file that keeps jobs; made if absent");
  app.add_option("--store", flags.election.store,
                 "what keeps jobs instead: etcd://HOST:PORT[,HOST:PORT...][/PREFIX], for several "
                 "planners of which one leads, or sqlite:FILE")
      ->excludes("--state");
  app.add_option("--advertise", flags.election.advertise,
                 "HOST:PORT at which the other planners of an etcd reach this one (default: "
                 "--listen)");
  app.add_option("--advertise-workers", flags.election.advertise_workers,
                 "HOST:PORT at which they reach its --worker-listen (default: that address)");
  app.add_option(
      "--peer-ca", flags.election.peer_authorities,
      "authorities, a PEM file: the leader of an etcd's planners must show a certificate "
      "of theirs; for planners without --tls-ca, which otherwise holds for these, too");
  app.add_option("--etcd-ca", flags.election.etcd.authorities,
                 "authorities, a PEM file: etcd must show a certificate of theirs");
  app.add_option("--etcd-cert", flags.election.etcd.certificate,
                 "certificate for etcd, a PEM file, if it asks for one");
  app.add_option("--etcd-key", flags.election.etcd.key, "its key, a PEM file without a password");
  app.add_flag("--etcd-insecure", flags.election.etcd_insecure,
               "speak to an etcd on another machine in the clear");
  app.add_option("--leader-lease", flags.lease_seconds,
                 "seconds of silence after which another planner leads")
      ->check(Within(2, 3600));
}

void AddLimitFlags(CLI::App& app, Flags& flags) {
  app.add_option(
         "--planning-threads", flags.options.planning_threads,
         "plans solved at once, of calls and of jobs each; one more for whom these keep waiting")
      ->check(CLI::Range(1, 1024));
  app.add_option("--planning-queue", flags.options.planning_queue,
                 "plans that may wait, of calls and of jobs each; more are refused")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--worker-timeout", flags.worker_timeout_seconds,
                 "seconds of silence after which a worker is lost")
      ->check(Within(0.1, 86400));
  app.add_option("--max-message-mib", flags.options.max_message_mib,
                 "largest request accepted, in MiB")
      ->check(CLI::Range(1, 2047));
  app.add_option("--keep-jobs", flags.options.keep_jobs,
                 "ended jobs that are kept, the newest; 0: all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  app.add_option("--keep-days", flags.options.keep_days,
                 "days that ended jobs are kept; 0: for ever")
      ->check(Within(0, 36500));
  app.add_option(
         "--quota", flags.owner_quotas,
         "OWNER=DEVICES: as many as the jobs of an owner without a tenant may hold at once; "
         "*=DEVICES for every other one; may be repeated")
      ->check([](const std::string& quota) {
        return std::string(ParseQuotas({quota}, {}).status().message());
      });
  app.add_option("--tenant-quota", flags.tenant_quotas,
                 "TENANT=DEVICES: as many as the jobs of a tenant may hold at once; *=DEVICES for "
                 "every other tenant; may be repeated")
      ->check([](const std::string& quota) {
        return std::string(ParseQuotas({}, {quota}).status().message());
      });
}

void AddDoorFlags(CLI::App& app, DoorOptions& door) {
  app.add_option("--tls-cert", door.tls.certificate,
                 "certificate of the planner, a PEM file; it and the next two are looked at again "
                 "every 5 s");
  app.add_option("--tls-key", door.tls.key, "its key, a PEM file without a password");
  app.add_option("--tls-ca", door.tls.authorities,
                 "authorities, a PEM file: clients and workers must show certificates of theirs");
  app.add_option("--token-file", door.token_file,
                 "lines TOKEN ROLE USER [TENANT]; read again when it changes");
  app.add_option(
      "--jwt-keys", door.jwt.keys_file,
      "public keys of an identity provider, a JSON Web Key Set: tokens that they sign are "
      "taken; read again when it changes");
  app.add_option("--jwt-issuer", door.jwt.issuer, "issuer (iss) that such a token must name");
  app.add_option("--jwt-audience", door.jwt.audience, "audience (aud) that such a token must name");
  app.add_option("--jwt-roles-claim", door.jwt.roles_claim,
                 "claim of such a token that lists roles: a name, or a path with dots");
  app.add_option("--jwt-role", door.jwt.role_values,
                 "VALUE=ROLE, what a value of that claim stands for (default: the roles' names)")
      ->allow_extra_args(false)
      ->default_str("");
  app.add_option("--jwt-tenant-claim", door.jwt.tenant_claim,
                 "claim of such a token that names the user's tenant: a name, or a path with dots; "
                 "tokens without it are refused, but workers'; empty: users have no tenant");
  app.add_flag("--insecure", door.insecure,
               "listen where other machines reach it in the clear, or with TLS without asking who "
               "calls: whoever does may do everything");
  app.add_option(
      "--audit-log", door.audit_log,
      "file that gets a line for every change that callers make (default: standard error, where "
      "callers must say who they are)");
}

// Says where the state is.
absl::Status SettlePlace(Flags& flags) {
  if (flags.elected()) return absl::OkStatus();
  absl::string_view store = flags.election.store;
  if (absl::ConsumePrefix(&store, "sqlite:")) {
    flags.options.state = std::string(store);
  } else if (!store.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--store \"", store, "\": expected etcd://... or sqlite:FILE"));
  }
  if (!flags.options.state.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("--state is empty: expected the name of a file");
}

// Told to one planner by itself these would do nothing, which who gave them should hear.
absl::Status CheckAlone(const ElectionOptions& election) {
  const std::pair<absl::string_view, bool> given[] = {
      {"--advertise", !election.advertise.empty()},
      {"--advertise-workers", !election.advertise_workers.empty()},
      {"--peer-ca", !election.peer_authorities.empty()},
      {"--etcd-ca", !election.etcd.authorities.empty()},
      {"--etcd-cert", !election.etcd.certificate.empty()},
      {"--etcd-key", !election.etcd.key.empty()},
      {"--etcd-insecure", election.etcd_insecure}};
  for (const auto& [flag, is_given] : given) {
    if (!is_given) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        flag, " is for planners of an etcd: give --store etcd://..., or leave it out"));
  }
  return absl::OkStatus();
}

// Carries what flags say over into options. What is wrong with that before anything is touched:
// `config validate` says the same as a start.
absl::Status Settle(Flags& flags) {
  RETURN_IF_ERROR(SettlePlace(flags));
  auto quotas = ParseQuotas(flags.owner_quotas, flags.tenant_quotas);
  if (!quotas.ok()) return Annotate(quotas.status(), "--quota, --tenant-quota");
  flags.options.quotas = *std::move(quotas);
  flags.options.worker_timeout = absl::Seconds(flags.worker_timeout_seconds);
  flags.election.lease = absl::Seconds(flags.lease_seconds);
  if (flags.elected()) return CheckOptions(flags.options, flags.election);
  RETURN_IF_ERROR(CheckAlone(flags.election));
  return CheckOptions(flags.options);
}

int Complain(const absl::Status& wrong) {
  Log(LogLevel::kError, wrong.message());
  return 1;
}

// Until a signal says that it is to end; the exit status.
int Serve(const Flags& flags) {
  signal(SIGXFSZ, SIG_IGN);    // A file that may not grow is an error like a full disk.
  OpenAsManyFilesAsAllowed();  // Clients and workers have a connection each.

  // Blocked before any thread starts, so that only sigwait below receives them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  auto server = flags.elected() ? StartElected(flags.options, flags.election)
                                : PlannerServer::Start(flags.options);
  if (!server.ok()) return Complain(server.status());
  const std::string metrics = (*server)->metrics_address(), workers = (*server)->worker_address();
  Log(LogLevel::kInfo,
      absl::StrCat("listening on ", (*server)->address(), workers.empty() ? "" : ", workers on ",
                   workers, metrics.empty() ? "" : ", metrics on ", metrics));
  Log(LogLevel::kInfo, (*server)->security());
  for (const std::string& note : (*server)->notes()) Log(LogLevel::kWarning, note);

  int received = 0;
  sigwait(&signals, &received);
  Log(LogLevel::kInfo, "shutting down");
  (*server)->Shutdown(absl::Seconds(5));
  return 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  LogOptions log = {kProgram};
  CLI::App app("stagewright-planner: plans pipeline-parallel training and runs it on workers");
  app.set_version_flag("--version", std::string("stagewright-planner ") + STAGEWRIGHT_VERSION);
  app.option_defaults()->always_capture_default();
  AddPlaceFlags(app, flags);
  AddLimitFlags(app, flags);
  AddDoorFlags(app, flags.options.door);
  AddLogFlags(app, log);
  Settings settings(app, {"STAGEWRIGHT_PLANNER_"});
  const auto config = AddConfigCommand(app, settings, kProgram, [&] { return Settle(flags); });
  const StateCommand state = AddStateCommand(app);
  if (const auto ends = ParseCommandLine(app, settings, {kProgram, argc, argv})) return *ends;
  SetUpLog(log);
  LogWhatGrpcSays();
  if (config.chosen()) return AfterOutput(kProgram, config.run());
  if (const absl::Status wrong = settings.Check(); !wrong.ok()) return Complain(wrong);
  for (const std::string& warning : settings.Warnings()) Log(LogLevel::kWarning, warning);
  if (state.chosen()) {
    // Whatever is wrong with the rest: a state can be mended.
    if (const absl::Status wrong = SettlePlace(flags); !wrong.ok()) return Complain(wrong);
    return AfterOutput(kProgram, state.run(flags.elected() ? "" : flags.options.state));
  }
  if (const absl::Status wrong = Settle(flags); !wrong.ok()) return Complain(wrong);
  flags.election.log = [](const std::string& line) { Log(LogLevel::kInfo, line); };
  return Serve(flags);
}

}  // namespace
}  // namespace stagewright

int main(int argc, char** argv) { return stagewright::Main(argc, argv); }
