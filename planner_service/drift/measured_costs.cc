#include "planner_service/drift/measured_costs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/cost/measured/operator_signature.h"
#include "planner_service/simulator/model_durations.h"

namespace stagewright {
namespace {

// A factor this near to 1 is none.
constexpr double kSame = 0.1;
// Fixed costs are corrected by no more than this: they are what is left of passes. What a message
// takes is measured.
constexpr double kMostFactor = 16;

// Measured and predicted time of the same work.
struct Sums {
  double measured = 0;
  double predicted = 0;

  void Add(double more_measured, double more_predicted) {
    measured += more_measured;
    predicted += more_predicted;
  }
  double ratio() const { return predicted > 0 && measured > 0 ? measured / predicted : 1; }
};

// The passes of an operator or a stage, forward and backward.
struct Passes {
  Sums forward, backward;

  double ratio() const {
    Sums all = forward;
    all.Add(backward.measured, backward.predicted);
    return all.ratio();
  }
};

using OfDevice = std::map<DeviceId, Passes>;

bool IsPass(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kBackward ||
         kind == ActionKind::kBackwardInput || kind == ActionKind::kBackwardWeight;
}

Nanos PartOf(const OperatorTime& time, ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return time.forward;
    case ActionKind::kBackwardInput:
      return time.backward_input;
    case ActionKind::kBackwardWeight:
      return time.backward_weight;
    default:
      return time.backward;
  }
}

class Correction {
 public:
  Correction(const RunningPlan& plan, const std::vector<ActionTimes>& actions,
             const std::vector<TimedOperator>& operators)
      : plan_(plan),
        durations_(MakeModelDurations(plan.graph, plan.program, plan.cluster, plan.costs,
                                      plan.optimizer)) {
    for (const TimedOperator& timed : operators)
      timed_[{timed.device, timed.stage}][timed.node] = timed;
    SumPasses(actions);
    for (const auto& [place, passes] : passes_) ShareOut(place.second, place.first, passes);
    FindFactors();
  }

  // By how much longer than its kind a device computes.
  double FactorOf(DeviceId device) const {
    const auto found = factors_.find(device);
    return found == factors_.end() || std::abs(found->second - 1) <= kSame ? 1 : found->second;
  }

  // Measured over predicted time of an operator on devices of `kind`, but for their factor.
  Passes RatioOf(const std::string& signature, int32_t kind) const {
    Passes all;
    const auto found = ratios_.find(signature);
    if (found == ratios_.end()) return all;
    for (const auto& [device, passes] : found->second) {
      if (plan_.cluster.device(device).kind != kind) continue;
      const double factor = FactorOf(device);
      all.forward.Add(passes.forward.measured / factor, passes.forward.predicted);
      all.backward.Add(passes.backward.measured / factor, passes.backward.predicted);
    }
    return all;
  }

  // Measured over predicted fixed costs of passes on a kind of device.
  double OverheadOf(int32_t kind) const {
    const auto found = overheads_.find(kind);
    if (found == overheads_.end() || found->second.predicted <= 0) return 1;
    return std::clamp(found->second.ratio(), 1 / kMostFactor, kMostFactor);
  }

  std::string SignatureOfNode(NodeId node) const {
    return plan_.graph.node(node).cost.has_value()
               ? std::string()
               : SignatureOf(plan_.graph, node, plan_.costs.precision());
  }

  // What is known of the operators of a kind; null: nothing.
  const MeasuredOperators* KnownOf(const std::string& kind) const {
    for (const auto& [device, operators] : plan_.profile.devices) {
      if (device.kind == kind) return &operators;
    }
    return nullptr;
  }

 private:
  const DeviceKind& KindOf(DeviceId device) const { return plan_.cluster.kind_of(device); }

  bool WasMeasuredByItself(const std::string& kind, const std::string& signature) const {
    const MeasuredOperators* known = KnownOf(kind);
    if (known == nullptr) return false;
    const auto found = known->find(signature);
    return found != known->end() && found->second.job.empty();
  }

  // What the operators of passes took, by device and stage, and what went beside them.
  void SumPasses(const std::vector<ActionTimes>& actions) {
    for (const ActionTimes& times : actions) {
      const ActionGroup& group = times.group;
      if (!IsPass(group.kind)) continue;
      Nanos work = 0;
      for (NodeId node : plan_.program.stages[group.stage.index()].nodes)
        work += PartOf(plan_.costs.Time(node, KindOf(group.device), group.samples), group.kind);
      const Action action{group.kind, group.stage, {0, group.samples}, -1};
      const Nanos fixed = durations_->Of(group.device, action) - work;
      const auto count = static_cast<double>(times.count);
      const double operators = OperatorsIn(times, static_cast<double>(work), fixed);
      Passes& passes = passes_[{group.device, group.stage}];
      (group.kind == ActionKind::kForward ? passes.forward : passes.backward)
          .Add(operators * count, static_cast<double>(work) * count);
      samples_[{group.device, group.stage}] = group.samples;
      // What a backward pass takes beside its operators adds gradients up, too.
      if (group.kind != ActionKind::kForward) continue;
      overheads_[plan_.cluster.device(group.device).kind].Add(
          (static_cast<double>(times.measured) - operators) * count,
          static_cast<double>(fixed) * count);
    }
  }

  // The part of a pass that its operators took: of a forward pass as they were timed; else in
  // proportion to the prediction, as operators of a backward pass are timed without the sums of
  // gradients; all of it on devices without fixed costs.
  double OperatorsIn(const ActionTimes& times, double work, Nanos fixed) const {
    const auto measured = static_cast<double>(times.measured);
    if (fixed <= 0) return measured;
    const bool forward = times.group.kind == ActionKind::kForward;
    const auto* timed = TimedIn(times.group.device, times.group.stage, times.group.samples);
    if (timed == nullptr || !forward) return measured * work / (work + static_cast<double>(fixed));
    Nanos sum = 0;
    for (NodeId node : plan_.program.stages[times.group.stage.index()].nodes)
      sum += timed->at(node).forward;
    return std::min(measured, static_cast<double>(sum));
  }

  // What was timed of a stage's operators in such passes, if all of them were; else null.
  const std::map<NodeId, TimedOperator>* TimedIn(DeviceId device, StageId stage,
                                                 int64_t samples) const {
    const auto found = timed_.find({device, stage});
    if (found == timed_.end()) return nullptr;
    for (NodeId node : plan_.program.stages[stage.index()].nodes) {
      const auto one = found->second.find(node);
      if (one == found->second.end() || one->second.samples != samples) return nullptr;
    }
    return &found->second;
  }

  // Operators take their part of the passes: as timed, if all of the stage were, else as predicted.
  void ShareOut(StageId stage, DeviceId device, const Passes& passes) {
    const std::vector<NodeId>& nodes = plan_.program.stages[stage.index()].nodes;
    const int64_t samples = samples_.at({device, stage});
    const auto* timed = TimedIn(device, stage, samples);
    Passes sum;
    std::vector<Passes> each;
    for (NodeId node : nodes) {
      const OperatorTime time = plan_.costs.Time(node, KindOf(device), samples);
      const Nanos forward = timed != nullptr ? timed->at(node).forward : time.forward;
      const Nanos backward = timed != nullptr ? timed->at(node).backward : time.backward;
      Passes& one = each.emplace_back();
      one.forward = {static_cast<double>(forward), static_cast<double>(time.forward)};
      one.backward = {static_cast<double>(backward), static_cast<double>(time.backward)};
      sum.forward.Add(one.forward.measured, one.forward.predicted);
      sum.backward.Add(one.backward.measured, one.backward.predicted);
    }
    // So that together they take what the pass did.
    const double forward = passes.forward.ratio() / sum.forward.ratio();
    const double backward = passes.backward.ratio() / sum.backward.ratio();
    for (size_t i = 0; i < nodes.size(); ++i) {
      const std::string signature = SignatureOfNode(nodes[i]);
      if (signature.empty()) continue;
      Passes& total = ratios_[signature][device];
      total.forward.Add(each[i].forward.measured * forward, each[i].forward.predicted);
      total.backward.Add(each[i].backward.measured * backward, each[i].backward.predicted);
    }
  }

  void FindFactors() {
    std::map<DeviceId, Sums> sums;
    for (const auto& [signature, devices] : ratios_) {
      for (const auto& [device, passes] : devices) {
        double expected = 1;
        if (!WasMeasuredByItself(KindOf(device).name, signature)) {
          Passes all;
          int alike = 0;
          for (const auto& [other, theirs] : devices) {
            if (plan_.cluster.device(other).kind != plan_.cluster.device(device).kind) continue;
            ++alike;
            all.forward.Add(theirs.forward.measured, theirs.forward.predicted);
            all.backward.Add(theirs.backward.measured, theirs.backward.predicted);
          }
          if (alike < 2) continue;
          expected = all.ratio();
        }
        sums[device].Add(passes.forward.measured + passes.backward.measured,
                         expected * (passes.forward.predicted + passes.backward.predicted));
      }
    }
    for (const auto& [device, sum] : sums) factors_[device] = sum.ratio();
  }

  using Place = std::pair<DeviceId, StageId>;

  const RunningPlan& plan_;
  const std::unique_ptr<Durations> durations_;
  std::map<Place, std::map<NodeId, TimedOperator>> timed_;
  std::map<Place, Passes> passes_;
  std::map<Place, int64_t> samples_;        // A pass's.
  std::map<int32_t, Sums> overheads_;       // What goes beside operators, by kind.
  std::map<std::string, OfDevice> ratios_;  // By signature.
  std::map<DeviceId, double> factors_;
};

// A kind that takes its times as they are: neighbours that slow it are in them.
DeviceKind WithoutSlowdown(DeviceKind kind) {
  kind.product_slowdown = kind.memory_slowdown = 1;
  return kind;
}

// The operators of one kind of device that is slower than `kind` by `factor`, neighbours of `kind`
// that slow it included.
MeasuredOperators OperatorsOf(const RunningPlan& plan, const Correction& correction, int32_t kind,
                              double factor, const std::string& day) {
  const DeviceKind& of = plan.cluster.kinds()[kind];
  const MeasuredOperators* known = correction.KnownOf(of.name);
  MeasuredOperators operators = known == nullptr ? MeasuredOperators() : *known;
  const auto scale = [](Nanos time, double by) {
    return Nanos(std::round(static_cast<double>(time) * by));
  };
  for (auto& [signature, measured] : operators) {
    for (OperatorMeasurement& at : measured.samples) {
      at.forward = scale(at.forward, factor);
      at.backward_input = scale(at.backward_input, factor);
      at.backward_weight = scale(at.backward_weight, factor);
      at.backward = at.backward_input + at.backward_weight;
    }
  }
  std::set<std::string> done;
  for (int32_t v = 0; v < plan.graph.size(); ++v) {
    const std::string signature = correction.SignatureOfNode(NodeId(v));
    const Passes ratio = correction.RatioOf(signature, kind);
    const bool told =
        ratio.forward.predicted > 0 || of.product_slowdown != 1 || of.memory_slowdown != 1;
    if (signature.empty() || !told || !done.insert(signature).second) continue;
    MeasuredOperator& measured = operators[signature];
    const std::vector<OperatorMeasurement> before = std::move(measured.samples);
    measured.samples.clear();
    measured.measured_on = day;
    measured.job.clear();
    for (int64_t samples = 1; samples <= plan.program.mini_batch; samples *= 2) {
      const OperatorTime time = plan.costs.Time(NodeId(v), of, samples);
      OperatorMeasurement at;
      at.samples = samples;
      at.forward = scale(time.forward, factor * ratio.forward.ratio());
      at.backward_input = scale(time.backward_input, factor * ratio.backward.ratio());
      at.backward_weight = scale(time.backward_weight, factor * ratio.backward.ratio());
      at.backward = at.backward_input + at.backward_weight;
      for (const OperatorMeasurement& alone : before) {  // Bytes were not measured in the job.
        if (alone.samples > samples) break;
        at.kept = alone.kept;
        at.workspace = alone.workspace;
      }
      measured.samples.push_back(at);
    }
  }
  return operators;
}

// Links by what messages over them took.
void CorrectLinks(const RunningPlan& plan, const std::vector<ActionTimes>& actions,
                  ClusterData& data) {
  std::map<int32_t, std::vector<double>> ratios;
  for (const ActionTimes& times : actions) {
    const bool forward = times.group.kind == ActionKind::kSendActivation;
    if (!IsSend(times.group.kind) || times.predicted <= 0 || times.measured <= 0) continue;
    const Channel& channel = plan.program.channels[times.group.channel];
    const Route& route = forward ? plan.cluster.route(channel.source, channel.target)
                                 : plan.cluster.route(channel.target, channel.source);
    for (const int32_t link : route.links) {
      ratios[link].push_back(static_cast<double>(times.measured) /
                             static_cast<double>(times.predicted));
    }
  }
  for (auto& [link, all] : ratios) {
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end());
    if (std::abs(*middle - 1) <= kSame) continue;
    data.links[link].latency = Nanos(static_cast<double>(data.links[link].latency) * *middle);
    data.links[link].bytes_per_second /= *middle;
  }
}

}  // namespace

std::vector<TimedOperator> ExpectedOperators(const Program& program, const Cluster& cluster,
                                             const CostModel& costs) {
  std::vector<TimedOperator> expected;
  std::set<std::tuple<StageId, int32_t, int64_t>> done;
  for (const DeviceProgram& device : program.devices) {
    const DeviceKind& kind = cluster.kind_of(device.device);
    for (const ProgramAction& item : device.body) {
      const Action& action = item.action;
      if (action.kind != ActionKind::kForward) continue;
      const int64_t samples = action.samples.size();
      if (!done.insert({action.stage, cluster.device(device.device).kind, samples}).second)
        continue;
      for (NodeId node : program.stages[action.stage.index()].nodes) {
        const OperatorTime time = costs.Time(node, kind, samples);
        expected.push_back(
            {device.device, action.stage, node, samples, time.forward, time.backward});
      }
    }
  }
  return expected;
}

MeasuredCosts CostsAsMeasured(const RunningPlan& plan, const std::vector<ActionTimes>& actions,
                              const std::vector<TimedOperator>& operators,
                              const std::string& source, const std::string& day) {
  const Correction correction(plan, actions, operators);
  ClusterData data = plan.cluster.data();
  OperatorProfile profile;
  const auto add = [&](const std::string& name, int32_t kind, double factor) {
    MeasuredOperators measured = OperatorsOf(plan, correction, kind, factor, day);
    if (!measured.empty()) profile.devices[{name, source}] = std::move(measured);
  };
  const auto kinds = static_cast<int32_t>(data.kinds.size());
  for (int32_t k = 0; k < kinds; ++k) {
    DeviceKind& kind = data.kinds[k];
    add(kind.name, k, 1);
    kind = WithoutSlowdown(std::move(kind));
    for (Nanos* cost : {&kind.pass_overhead, &kind.message_overhead})
      *cost = Nanos(static_cast<double>(*cost) * correction.OverheadOf(k));
  }
  for (int32_t d = 0; d < plan.cluster.size(); ++d) {
    const double factor = correction.FactorOf(DeviceId(d));
    if (factor == 1) continue;
    const int32_t kind = data.devices[d].kind;
    DeviceKind own = WithoutSlowdown(WithSlowdown(data.kinds[kind], factor, factor));
    absl::StrAppend(&own.name, "@", data.devices[d].name);
    add(own.name, kind, factor);
    data.devices[d].kind = static_cast<int32_t>(data.kinds.size());
    data.kinds.push_back(std::move(own));
  }
  CorrectLinks(plan, actions, data);
  auto cluster = Cluster::Create(std::move(data));
  // A cost that is near the most that a cluster may have can come to lie beyond.
  if (!cluster.ok()) return {plan.cluster, std::move(profile)};
  return {*std::move(cluster), std::move(profile)};
}

}  // namespace stagewright
