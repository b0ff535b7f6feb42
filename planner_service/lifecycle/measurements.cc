#include "planner_service/lifecycle/measurements.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "common/cost/analytic.h"
#include "common/wire/strategy_proto.h"
#include "common/wire/topology_proto.h"
#include "planner_service/drift/drift_causes.h"
#include "planner_service/drift/step_profile.h"
#include "planner_service/drift/stragglers.h"
#include "planner_service/lifecycle/changeover.h"
#include "planner_service/profiles/profile_choice.h"
#include "planner_service/runs/check_report.h"
#include "planner_service/runs/worker_messages.h"

namespace stagewright {
namespace {

constexpr size_t kLeastSteps = 16;  // A median of fewer says nothing.
// A drift is over when it is this much less than what began it.
constexpr double kOver = kDrift * 0.8;
constexpr absl::Duration kAgain = absl::Seconds(30);
// Workers that were asked too late do not answer: so many steps later nobody does any more.
constexpr int64_t kGiveUp = 64;
constexpr int32_t kSteps = 5;
constexpr int64_t kMostEvents = 1 << 16;
constexpr size_t kMostActions = 256;

template <typename Protos>
absl::StatusOr<std::vector<TraceEvent>> Events(const Protos& protos) {
  std::vector<TraceEvent> events;
  for (const v1::TraceEvent& proto : protos) {
    ASSIGN_OR_RETURN(TraceEvent event, FromProto(proto));
    events.push_back(event);
  }
  return events;
}

template <typename Protos>
std::vector<TimedOperator> Operators(const Protos& protos) {
  std::vector<TimedOperator> operators;
  for (const v1::OperatorTime& proto : protos) operators.push_back(FromProto(proto));
  return operators;
}

// Events of a worker's trace, unless they name what the program has not.
bool FitsProgram(const v1::Program& program, const v1::TraceEvent& event) {
  const v1::Action& action = event.action();
  const int32_t channel = action.channel_plus_one() - 1;
  const bool sum = action.kind() == v1::ACTION_KIND_ALL_REDUCE;
  const bool transfer = action.kind() >= v1::ACTION_KIND_SEND_ACTIVATION &&
                        action.kind() <= v1::ACTION_KIND_RECEIVE_GRADIENT;
  if (action.stage() < 0 || action.stage() >= program.stages_size() || event.device() < 0)
    return false;
  if (sum) return channel >= 0 && channel < program.reductions_size();
  return !transfer || (channel >= 0 && channel < program.channels_size());
}

std::string NameOf(const Job& job, DeviceId device) {
  return device.valid() && device.index() < job.devices.size() ? job.devices[device.index()]
                                                               : "a device";
}

std::vector<std::string> DevicesOf(const Job& job, const Program& program,
                                   const ActionGroup& group) {
  if (group.kind == ActionKind::kAllReduce) {
    std::vector<std::string> members;
    for (DeviceId device : program.reductions[group.channel].devices)
      members.push_back(NameOf(job, device));
    return members;
  }
  std::vector<std::string> names = {NameOf(job, group.device)};
  if (IsSend(group.kind)) {
    const Channel& channel = program.channels[group.channel];
    names.push_back(
        NameOf(job, group.kind == ActionKind::kSendActivation ? channel.target : channel.source));
  }
  return names;
}

v1::StepMeasurement ToProto(const Job& job, const Program& program, const Measured& measured) {
  v1::StepMeasurement proto;
  proto.set_step(measured.step);
  proto.set_steps(measured.steps);
  for (size_t i = 0; i < std::min(measured.actions.size(), kMostActions); ++i) {
    const ActionTimes& times = measured.actions[i];
    v1::ActionTime* out = proto.add_actions();
    Action action;
    action.kind = times.group.kind;
    action.channel = times.group.channel;
    const v1::TraceEvent named = ToProto(TraceEvent{times.group.device, action, 0, 0, 0});
    out->set_kind(named.action().kind());
    out->set_channel_plus_one(named.action().channel_plus_one());
    out->set_stage(times.group.stage.value());
    for (const std::string& name : DevicesOf(job, program, times.group)) out->add_devices(name);
    out->set_samples(times.group.samples);
    out->set_count(times.count);
    out->set_size_bytes(times.bytes.count());
    out->set_predicted_ns(times.predicted.count());
    out->set_measured_ns(times.measured.count());
  }
  for (const TimedOperator& timed : measured.operators)
    *proto.add_operators() = stagewright::ToProto(timed);
  return proto;
}

// Says once what a drift comes from, and keeps saying it to those who ask.
void NameCauses(JobRecords& records, JobRecord& record, const Program& program) {
  Job& job = record.job;
  const bool first = job.drift->causes.empty();
  const auto& nodes = job.planned_graph->nodes();
  NamesOfJob names;
  names.device = [&job](DeviceId device) { return NameOf(job, device); };
  names.node = [&nodes](NodeId node) {
    return node.valid() && node.value() < nodes.size() ? nodes[node.value()].name() : "?";
  };
  job.drift->causes =
      CausesOf(program, job.metrics.predicted_step_time, job.metrics.recent_step_time,
               record.measured->actions, Operators(record.trace.predicted_operators()),
               record.measured->operators, names);
  if (!first) return;
  records.Note(
      job, EventKind::kDrift,
      absl::StrCat("a step takes ", FormatDuration(job.metrics.recent_step_time), ", predicted ",
                   FormatDuration(job.metrics.predicted_step_time), " (",
                   PercentText(job.drift->ratio), "): ", absl::StrJoin(job.drift->causes, "; ")));
}

void Ask(JobRecords& records, JobRecord& record, absl::Time now) {
  const Job& job = record.job;
  Run& run = *record.run;
  int64_t actions = 1;
  for (const v1::DeviceProgram& device : job.plan->program().devices())
    actions += device.body_size();
  const auto steps =
      static_cast<int32_t>(std::clamp<int64_t>(kMostEvents / actions, kLeastWindowSteps, kSteps));
  const int64_t first = run.newest_step() + StepsAhead(job.metrics.recent_step_time);
  if (run.total_steps() > 0 && first + steps > run.total_steps()) return;
  run.traces().Ask(first, steps, now);
  run.look_again.NoteAsked();
  records.SendToAll(record, TraceMessage(job, first, steps));
}

// What is connected now of the job's devices.
std::map<DeviceId, RegisteredDevice> DevicesOf(const Job& job, const WorkerRegistry& registry) {
  std::map<DeviceId, RegisteredDevice> devices;
  for (RegisteredDevice& device : registry.Devices(/*free_only=*/false)) {
    const auto own = std::find(job.devices.begin(), job.devices.end(), device.QualifiedName());
    if (own != job.devices.end())
      devices.emplace(DeviceId(own - job.devices.begin()), std::move(device));
  }
  return devices;
}

// Jobs to come are planned by what the operators of this one took, where one profile can be true of
// its kinds of devices.
void KeepProfile(JobRecords& records, const JobRecord& record,
                 const std::map<DeviceId, RegisteredDevice>& devices,
                 const std::vector<TimedOperator>& operators) {
  const Job& job = record.job;
  if (operators.empty() || !FromProto(job.plan->strategy()).splits.empty()) return;
  if (job.replans > 0) return;  // Its cluster no longer tells what neighbours do.
  const auto cluster = FromProto(record.cluster);
  if (!cluster.ok()) return;  // A planner before this one had it.
  std::set<std::string> hosts;
  for (const auto& [id, device] : devices) hosts.insert(device.host_address);
  std::vector<RegisteredDevice> all;  // Others' jobs slow these, too.
  for (RegisteredDevice& device : records.registry().Devices(/*free_only=*/false)) {
    if (hosts.contains(device.host_address)) all.push_back(std::move(device));
  }
  const std::set<std::string> unlike = UnlikeKinds(all);
  std::map<DeviceId, ProfiledDevice> measured;
  for (const auto& [id, device] : devices) {
    if (id.index() >= static_cast<size_t>(cluster->size())) continue;
    const DeviceKind& kind = cluster->kind_of(id);
    // Profiles are of devices without busy neighbours.
    if (kind.product_slowdown != 1 || kind.memory_slowdown != 1) continue;
    if (!unlike.contains(device.kind.name()) && !device.software.empty())
      measured[id] = {device.kind.name(), device.software};
  }
  const Graph& graph = *job.request->graph;
  const auto costs = MakeAnalyticCostModel(graph, job.request->training.precision);
  const std::string day = absl::FormatCivilTime(absl::ToCivilDay(absl::Now(), absl::UTCTimeZone()));
  OperatorProfile profile =
      ProfileOfSteps(graph, *cluster, *costs, operators, measured, job.name(), day);
  if (Check(profile).ok()) records.KeepProfile(job, std::move(profile));
}

// "device ... takes ...; device ...", for each worker that has some of them.
std::map<std::string, std::string> TextsByWorker(
    const Job& job, const std::map<DeviceId, SlowDevice>& stragglers,
    const std::function<std::string(const SlowDevice&, const std::string& name)>& text) {
  std::map<std::string, std::string> texts;
  for (const auto& [device, slow] : stragglers) {
    const std::string name = NameOf(job, device);
    std::string& all = texts[name.substr(0, name.find('/'))];
    absl::StrAppend(&all, all.empty() ? "" : "; ", text(slow, name));
  }
  return texts;
}

std::map<DeviceId, SlowDevice> Without(std::map<DeviceId, SlowDevice> all,
                                       const std::map<DeviceId, SlowDevice>& those) {
  std::erase_if(all, [&](const auto& entry) { return those.contains(entry.first); });
  return all;
}

// Says once of a device that it is a straggler, and once that it is none any more. The first window
// of a run is not judged: its steps pay for memory and caches. Nor is one while devices stop, or
// wait for each other: it keeps nobody suspected.
void NameStragglers(JobRecords& records, JobRecord& record, const Measured& measured) {
  Job& job = record.job;
  Run& run = *record.run;
  const bool first = measured.step <= run.first_step() + kTracedSteps;
  if (first || measured.steps < kLeastWindowSteps) return;
  if (job.state != JobState::kRunning || record.changeover.has_value())
    return run.stragglers.suspects.clear();
  const Stragglers before = std::move(run.stragglers);
  run.stragglers = After(before, PacesOf(measured.actions, job.metrics.predicted_step_time),
                         measured.step - measured.steps + 1);
  const auto& named = run.stragglers.named;
  if (!run.stragglers.suspects.empty()) run.look_again.Want();
  const auto begun = TextsByWorker(job, Without(named, before.named),
                                   [&](const SlowDevice& slow, const std::string& name) {
                                     return StragglerText(slow, name, measured.step);
                                   });
  const auto gone = TextsByWorker(
      job, Without(before.named, named), [](const SlowDevice& /*slow*/, const std::string& name) {
        return absl::StrCat("device ", name, " is no longer slower than its like");
      });
  for (const auto& [worker, text] : begun) records.Note(job, EventKind::kStraggler, text, worker);
  for (const auto& [worker, text] : gone)
    records.Note(job, EventKind::kStragglerGone, text, worker);
  job.stragglers.clear();
  for (const auto& [device, slow] : named) {
    const DevicePace& pace = slow.pace;
    job.stragglers.push_back({NameOf(job, device), pace.stage.value(), pace.Times(),
                              slow.since_step, pace.busy, pace.expected});
  }
}

void Compare(JobRecords& records, JobRecord& record) {
  Job& job = record.job;
  const TraceWindow::Told told = record.run->traces().Take();
  const auto program = FromProto(job.plan->program());
  const auto predicted = Events(record.trace.predicted());
  if (!program.ok() || !predicted.ok() || predicted->empty() || told.steps == 0) return;
  const std::map<DeviceId, RegisteredDevice> devices = DevicesOf(job, records.registry());
  const auto host = [&](DeviceId device) {
    const auto found = devices.find(device);
    return found == devices.end() ? absl::StrCat("device ", device.value())
                                  : found->second.host_address;
  };
  Measured measured;
  measured.step = told.last + 1;
  measured.steps = told.steps;
  measured.actions = CompareTimes(*program, *predicted, told.events,
                                  [&host](DeviceId a, DeviceId b) { return host(a) == host(b); });
  for (const TimedOperator& timed : told.operators) {
    const bool known = timed.stage.index() < program->stages.size() && timed.node.valid() &&
                       timed.node.value() < job.planned_graph->nodes_size();
    if (known) measured.operators.push_back(timed);
  }
  if (measured.step > record.run->first_step() + kTracedSteps) {
    record.trace.clear_measured();
    for (const TraceEvent& event : told.events)
      *record.trace.add_measured() = stagewright::ToProto(event);
  }
  KeepProfile(records, record, devices, measured.operators);
  // The first steps are told without operators, which were perhaps timed later.
  if (measured.operators.empty() && record.measured.has_value())
    measured.operators = std::move(record.measured->operators);
  job.measurement = std::make_shared<const v1::StepMeasurement>(ToProto(job, *program, measured));
  record.measured = std::move(measured);
  if (job.drift.has_value()) NameCauses(records, record, *program);
  NameStragglers(records, record, *record.measured);
  records.AnnounceChange(job);
}

}  // namespace

bool IsMeasured(const Job& job) {
  return job.plan != nullptr && job.plan->lengths_size() == 0 && !IsAsynchronous(job);
}

void BeginMeasuring(JobRecord& record, absl::Time now) {
  if (!IsMeasured(record.job)) return;
  const int64_t half = kTracedSteps / 2;
  record.run->traces().Ask(record.run->first_step() + half, static_cast<int32_t>(half), now);
}

void NoteActions(JobRecords& records, JobRecord& record, const v1::Progress& message) {
  const v1::Program& program = record.job.plan->program();
  const bool fits = std::all_of(message.trace().begin(), message.trace().end(),
                                [&](const auto& event) { return FitsProgram(program, event); });
  if (message.trace().empty() || !fits) return;
  const bool asked = message.step() > record.run->first_step() + kTracedSteps;
  // Each device tells each of these steps once.
  const int64_t most = kTracedSteps * MostEvents(*record.job.plan);
  if (!asked && record.trace.measured_size() + message.trace_size() <= most)
    record.trace.mutable_measured()->MergeFrom(message.trace());
  if (!IsMeasured(record.job)) return;
  auto events = Events(message.trace());
  if (!events.ok()) return;
  bool complete = false;
  for (const v1::DeviceProgress& device : message.devices()) {
    std::vector<TraceEvent> own;
    std::copy_if(events->begin(), events->end(), std::back_inserter(own),
                 [&](const auto& event) { return event.device.value() == device.device(); });
    complete |= record.run->traces().Add(device.device(), message.step() - 1, std::move(own),
                                         Operators(device.operators()));
  }
  if (complete) Compare(records, record);
}

void WatchDrift(JobRecords& records, JobRecord& record, absl::Time now) {
  Job& job = record.job;
  Run& run = *record.run;
  const JobMetrics& metrics = job.metrics;
  if (metrics.predicted_step_time <= 0 || !IsMeasured(job)) return;
  bool begins = false;
  if (run.recent_steps().size() >= kLeastSteps) {
    const double ratio = static_cast<double>(metrics.recent_step_time) /
                             static_cast<double>(metrics.predicted_step_time) -
                         1;
    const bool drifts = std::abs(ratio) > (job.drift.has_value() ? kOver : kDrift);
    begins = drifts && !job.drift.has_value();
    if (!drifts && job.drift.has_value())
      records.Note(job, EventKind::kDrift, "steps are as predicted again");
    if (!drifts) job.drift.reset();
    if (begins) job.drift = JobDrift{ratio, {}, metrics.step};
    if (drifts) job.drift->ratio = ratio;
  }
  run.look_again.NoteStep(metrics.step_time, run.recent_steps().Changed());
  TraceWindow& traces = run.traces();
  const bool given_up = traces.open() && run.newest_step() > traces.end() + kGiveUp;
  const bool again =
      !traces.open() && (begins || run.look_again.due() || now - traces.asked() >= kAgain);
  if (again || given_up) {
    Ask(records, record, now);
  } else if (!traces.open() && record.measured.has_value() && record.measured->operators.empty() &&
             !record.asked_operators) {
    record.asked_operators = true;
    Ask(records, record, now);
  }
}

void ForgetMeasurement(JobRecord& record) {
  record.measured.reset();
  record.asked_operators = false;
  record.job.measurement.reset();
  record.job.drift.reset();
  record.job.stragglers.clear();
}

}  // namespace stagewright
