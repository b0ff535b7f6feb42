#include "clients/cli/service/diagnosis.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/units.h"

namespace stagewright::cli {
namespace {

constexpr int64_t kLittleRoom = int64_t{1} << 30;
constexpr size_t kMostNamed = 10;

std::string Names(std::vector<std::string> names) {
  const size_t more = names.size() - std::min(names.size(), kMostNamed);
  names.resize(names.size() - more);
  return absl::StrCat(absl::StrJoin(names, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}
constexpr absl::Duration kLate = absl::Seconds(8);
// Workers try for a planner that is started again at least every five seconds.
constexpr absl::Duration kSettling = absl::Seconds(15);

absl::Time TimeOf(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

// What is kept from jobs: "w0 is cordoned", "w1/cpu0 is in quarantine (why)".
std::vector<std::string> TakeNoJobs(const v1::ListWorkersResponse& workers) {
  std::vector<std::string> closed;
  for (const v1::Worker& worker : workers.workers()) {
    if (worker.availability() == v1::WORKER_AVAILABILITY_CORDONED)
      closed.push_back(worker.name() + " is cordoned");
    if (worker.availability() == v1::WORKER_AVAILABILITY_DRAINING)
      closed.push_back(worker.name() + " is draining");
    for (const v1::WorkerDevice& device : worker.devices()) {
      if (device.has_quarantined_until())
        closed.push_back(absl::StrCat(worker.name(), "/", device.name(), " is in quarantine (",
                                      device.quarantine_reason(), ")"));
    }
  }
  return closed;
}

}  // namespace

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "good";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kBad:
      return "bad";
  }
  return "unknown";
}

Finding CheckVersions(const std::string& own, const v1::GetServerResponse& server,
                      const v1::ListWorkersResponse& workers) {
  std::set<std::string> others;
  for (const v1::Worker& worker : workers.workers()) {
    if (worker.version() != server.version())
      others.insert(absl::StrCat(worker.name(), " ", worker.version()));
  }
  const std::string seen = absl::StrCat("client ", own, ", planner ", server.version());
  if (!others.empty()) {
    return {
        Verdict::kBad, "versions", absl::StrCat(seen, ", workers ", absl::StrJoin(others, ", ")),
        "install one version everywhere: planner and workers must agree, and workers of another "
        "version than those that are connected are not let in"};
  }
  if (own != server.version()) {
    return {Verdict::kWarning, "versions", seen,
            "install the planner's version here: commands and fields may be missing"};
  }
  return {Verdict::kGood, "versions", seen, ""};
}

Finding CheckWorkers(const v1::GetServerResponse& server, const v1::ListWorkersResponse& workers,
                     absl::Time now) {
  const absl::Duration age = now - TimeOf(server.start_time());
  if (workers.workers().empty() && absl::AbsDuration(age) < kSettling) {
    return {Verdict::kWarning, "workers",
            absl::StrCat("none is connected yet; the planner was started ",
                         absl::ToInt64Seconds(std::max(age, absl::ZeroDuration())), " s ago"),
            "run stagewright doctor again in a few seconds: workers try for it again"};
  }
  if (workers.workers().empty()) {
    return {Verdict::kBad, "workers", "none is connected",
            "start stagewright-worker --planner HOST:PORT on a machine, or look into its log"};
  }
  int devices = 0, held = 0;
  std::vector<std::string> late;
  for (const v1::Worker& worker : workers.workers()) {
    devices += worker.devices_size();
    for (const v1::WorkerDevice& device : worker.devices()) held += device.job().empty() ? 0 : 1;
    if (now - TimeOf(worker.last_heartbeat_time()) > kLate) late.push_back(worker.name());
  }
  std::string seen = absl::StrCat(workers.workers_size(), " connected, ", held, " of ", devices,
                                  " devices held by jobs");
  const std::vector<std::string> closed = TakeNoJobs(workers);
  if (!closed.empty()) absl::StrAppend(&seen, "; ", absl::StrJoin(closed, ", "));
  if (!late.empty()) {
    return {Verdict::kWarning, "workers",
            absl::StrCat(seen, "; not heard of lately: ", absl::StrJoin(late, ", ")),
            "look at the load of these machines and of the network; compare the clocks"};
  }
  if (closed.empty()) return {Verdict::kGood, "workers", seen, ""};
  return {Verdict::kWarning, "workers", seen,
          "once the cause is mended, stagewright workers uncordon NAME gives a worker jobs again"};
}

Finding CheckState(const v1::GetServerResponse& server, bool writable) {
  if (!writable) {
    return {Verdict::kBad, "state", absl::StrCat(server.state_path(), " cannot be written"),
            "the planner's log says why, and goes on by itself once it can; until then jobs stand "
            "still and none is taken"};
  }
  if (server.state_path() == ":memory:") {
    return {Verdict::kWarning, "state", absl::StrCat(server.state_path(), " keeps nothing"),
            "start the planner with --state FILE: jobs are lost when it ends"};
  }
  if (server.state_free_bytes() == 0 && server.state_bytes() == 0) {
    return {Verdict::kGood, "state",
            absl::StrCat(server.state_path(), ", whose room is not known here"), ""};
  }
  const std::string seen =
      absl::StrCat(server.state_path(), " has ", FormatBytes(Bytes(server.state_bytes())), ", ",
                   FormatBytes(Bytes(server.state_free_bytes())), " are free");
  if (server.state_free_bytes() >= kLittleRoom) return {Verdict::kGood, "state", seen, ""};
  return {Verdict::kBad, "state", seen,
          "make room, or forget jobs: --keep-days of the planner, stagewright jobs rm"};
}

Finding CheckQueue(const v1::GetServerResponse& server) {
  const std::string seen = absl::StrCat(server.plans_waiting(), " plans wait for a thread");
  if (server.plans_waiting() == 0) return {Verdict::kGood, "planning", seen, ""};
  return {Verdict::kWarning, "planning", seen,
          "if that lasts, raise --planning-threads or bound searches with --time-limit"};
}

Finding CheckLinks(const absl::Status& asked, const v1::MeasureTopologyResponse& topology) {
  if (!asked.ok()) {
    return {Verdict::kWarning, "links", absl::StrCat("not known: ", asked.message()),
            absl::IsPermissionDenied(asked) ? "ask with a token that may submit jobs"
                                            : "ask again, and look at the planner's log"};
  }
  if (absl::StrContains(topology.summary(), "assumed")) {
    return {
        Verdict::kWarning, "links", topology.summary(),
        "stagewright topology measure says why, but for workers with --device-kind, which measure "
        "none; plans are as good as the figures they go by"};
  }
  if (topology.pending() > 0) {
    return {Verdict::kGood, "links",
            absl::StrCat(topology.summary(), "; ", topology.pending(), " are being measured"), ""};
  }
  return {Verdict::kGood, "links", topology.summary(), ""};
}

Finding CheckJobs(const std::vector<v1::Job>& jobs, absl::Time now) {
  int running = 0, waiting = 0, holding = 0;
  std::vector<std::string> recovering, failed;
  const v1::Job* first = nullptr;  // The one that has waited longest.
  for (const v1::Job& job : jobs) {
    holding +=
        job.state() == v1::JOB_STATE_RUNNING || job.state() == v1::JOB_STATE_STARTING ? 1 : 0;
    if (job.state() == v1::JOB_STATE_WAITING_FOR_DEVICES &&
        (first == nullptr || TimeOf(job.create_time()) < TimeOf(first->create_time())))
      first = &job;
    running += job.state() == v1::JOB_STATE_RUNNING ? 1 : 0;
    waiting +=
        job.state() == v1::JOB_STATE_PENDING || job.state() == v1::JOB_STATE_WAITING_FOR_DEVICES
            ? 1
            : 0;
    if (job.state() == v1::JOB_STATE_RECOVERING) recovering.push_back(job.name());
    if (job.state() == v1::JOB_STATE_FAILED && now - TimeOf(job.end_time()) < absl::Hours(24))
      failed.push_back(job.name());
  }
  std::string seen = absl::StrCat(running, " running, ", waiting, " waiting");
  if (!recovering.empty()) absl::StrAppend(&seen, "; recovering: ", Names(recovering));
  if (!failed.empty()) absl::StrAppend(&seen, "; failed today: ", Names(failed));
  // Nobody has what it waits for.
  const bool stuck = first != nullptr && holding == 0;
  if (stuck) absl::StrAppend(&seen, "; ", first->name(), " waits: ", first->message());
  if (recovering.empty() && failed.empty() && !stuck) return {Verdict::kGood, "jobs", seen, ""};
  return {Verdict::kWarning, "jobs", seen, "stagewright jobs describe says what happened to each"};
}

}  // namespace stagewright::cli
