#include "common/cost/measured/profiled_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/cost/measured/monotone_curve.h"
#include "common/cost/measured/operator_signature.h"
#include "common/cost/retention.h"
#include "common/graph/aten.h"

namespace stagewright {
namespace {

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <typename F>
MonotoneCurve CurveOf(const MeasuredOperator& measured, bool constant, F&& value) {
  std::vector<std::pair<double, double>> points;
  for (const OperatorMeasurement& at : measured.samples)
    points.emplace_back(static_cast<double>(at.samples), static_cast<double>(value(at)));
  return MonotoneCurve(std::move(points), constant);
}

using Types = std::optional<GraphTypes>;

// Copies of operands in the types that the node takes them in.
Bytes CopiesTaken(const Graph& graph, NodeId id, int64_t samples, const Types& types) {
  if (!types.has_value()) return 0;
  const std::vector<DType>& taken = types->nodes[id.index()].operands;
  Bytes bytes = 0;
  size_t operand = 0;
  const auto add = [&](const TensorMeta& meta, DType comes) {
    const DType as = taken[operand++];
    if (as != comes) bytes += meta.Elements(samples) * SizeOf(as);
  };
  for (const ValueRef& value : graph.Values(id))
    add(graph.meta(value), TypeOf(graph, types, value));
  for (const InputId& input : graph.Inputs(id)) {
    const TensorMeta& meta = graph.input(input).meta;
    add(meta, meta.dtype);
  }
  return bytes;
}

// Whether such copies stay for the backward pass.
bool KeepsCopies(const Graph& graph, NodeId id) {
  return graph.needs_backward(id) && NeedsItsInputs(graph, id);
}

// What a node by itself keeps of what its forward pass makes, as far as the graph tells.
Bytes KeptAlone(const Graph& graph, NodeId id, int64_t samples, const Types& types) {
  if (!graph.needs_backward(id)) return 0;
  const Node& node = graph.node(id);
  Bytes bytes = HiddenBytes(graph, id, samples);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (i == 0 && !NeedsItsOutputs(graph, id)) continue;
    const DType type = TypeOf(graph, types, {id, static_cast<int32_t>(i)});
    bytes += node.outputs[i].Elements(samples) * SizeOf(type);
  }
  return bytes + (KeepsCopies(graph, id) ? CopiesTaken(graph, id, samples, types) : Bytes(0));
}

// What it takes and does not keep, as far as the graph tells.
Bytes TakenAlone(const Graph& graph, NodeId id, int64_t samples, const Types& types) {
  const Bytes copies = KeepsCopies(graph, id) ? Bytes(0) : CopiesTaken(graph, id, samples, types);
  return std::max(TemporaryBytes(graph, id, samples, false) + copies,
                  TemporaryBytes(graph, id, samples, true));
}

// One node on one kind of device.
struct MeasuredCurves {
  MonotoneCurve forward, backward_input, backward_weight;
  MonotoneCurve kept, workspace;  // Bytes beyond those that the graph tells of.
};

MeasuredCurves CurvesOf(const Graph& graph, NodeId id, const MeasuredOperator& measured,
                        const Types& types) {
  const bool constant = !DependsOnSamples(graph, id);
  const auto beyond = [](Bytes bytes, Bytes known) { return std::max(bytes - known, Bytes(0)); };
  return {CurveOf(measured, constant, [](const auto& at) { return at.forward; }),
          CurveOf(measured, constant, [](const auto& at) { return at.backward_input; }),
          CurveOf(measured, constant, [](const auto& at) { return at.backward_weight; }),
          CurveOf(measured, constant,
                  [&](const auto& at) {
                    return beyond(at.kept, KeptAlone(graph, id, at.samples, types));
                  }),
          CurveOf(measured, constant, [&](const auto& at) {
            return beyond(at.workspace, TakenAlone(graph, id, at.samples, types));
          })};
}

// The measurements that count for a kind of device; null without any.
const std::pair<const ProfiledDevice, MeasuredOperators>* FindDevice(const OperatorProfile& profile,
                                                                     const std::string& kind) {
  const std::pair<const ProfiledDevice, MeasuredOperators>* last = nullptr;
  std::string last_day;
  for (const auto& entry : profile.devices) {
    if (entry.first.kind != kind) continue;
    std::string day;
    for (const auto& [signature, measured] : entry.second)
      day = std::max(day, measured.measured_on);
    if (last == nullptr || day >= last_day) {
      last = &entry;
      last_day = day;
    }
  }
  return last;
}

double Whole(const OperatorTime& time) { return static_cast<double>(time.forward + time.backward); }

// All nodes on one kind of device.
class KindCosts {
 public:
  KindCosts(const Graph& graph, const DeviceKind& kind, const ProfiledDevice& device,
            const MeasuredOperators& operators, const std::vector<std::string>& signatures,
            const Types& types, const CostModel& analytic)
      : kind_(kind.name),
        device_(device),
        curves_(signatures.size()),
        scale_(signatures.size(), 1) {
    const DeviceKind alone = Alone(kind);
    std::map<AtenKind, std::vector<double>> ratios;
    std::vector<double> all;
    for (size_t v = 0; v < signatures.size(); ++v) {
      const auto found = operators.find(signatures[v]);
      if (signatures[v].empty() || found == operators.end()) continue;
      const NodeId id(static_cast<int64_t>(v));
      curves_[v] = CurvesOf(graph, id, found->second, types);
      ++covered_;
      days_.push_back(found->second.measured_on);
      const AtenKind aten = KindOfTarget(graph.node(id).target);
      for (const OperatorMeasurement& at : found->second.samples) {
        const double modelled = Whole(analytic.Time(id, alone, at.samples));
        if (modelled <= 0) continue;  // A view.
        all.push_back(static_cast<double>(at.forward + at.backward) / modelled);
        ratios[aten].push_back(all.back());
        scale_[v] = Whole(analytic.Time(id, kind, at.samples)) / modelled;
      }
    }
    if (all.empty()) return;
    for (size_t v = 0; v < signatures.size(); ++v) {
      if (curves_[v].has_value() || signatures[v].empty()) continue;
      const auto alike =
          ratios.find(KindOfTarget(graph.node(NodeId(static_cast<int64_t>(v))).target));
      scale_[v] = Median(alike == ratios.end() ? all : alike->second);
    }
  }

  const std::string& kind() const { return kind_; }
  const std::optional<MeasuredCurves>& curves(NodeId id) const { return curves_[id.index()]; }
  // Multiplies the measured time, or the analytic one where there is none.
  double scale(NodeId id) const { return scale_[id.index()]; }

  // "31 of 34 operators measured 2026-11-22 on cpu (torch 2.13.0, 1 thread)".
  std::string Coverage() const {
    std::string text = absl::StrCat(covered_, " of ", curves_.size(), " operators");
    if (covered_ == 0) return absl::StrCat(text, " on ", kind_);
    const auto [first, last] = std::minmax_element(days_.begin(), days_.end());
    absl::StrAppend(&text, " measured ", *first,
                    *first == *last ? "" : absl::StrCat(" to ", *last));
    return absl::StrCat(text, " on ", kind_, " (", device_.software, ")");
  }
  bool all_covered() const { return covered_ == curves_.size(); }

 private:
  const std::string kind_;
  const ProfiledDevice device_;
  std::vector<std::optional<MeasuredCurves>> curves_;  // By node.
  std::vector<double> scale_;                          // By node.
  size_t covered_ = 0;
  std::vector<std::string> days_;
};

Nanos Scaled(Nanos time, double factor) {
  return Nanos(std::round(static_cast<double>(time) * factor));
}

class ProfiledCostModel : public CostModel {
 public:
  ProfiledCostModel(const Graph& graph, std::span<const DeviceKind> kinds,
                    const OperatorProfile& profile, std::unique_ptr<CostModel> analytic)
      : analytic_(std::move(analytic)) {
    const std::vector<std::string> signatures = SignaturesOf(graph, analytic_->precision());
    const Types types = MixedTypes(graph, analytic_->precision());
    for (const DeviceKind& kind : kinds) {
      const auto* found = FindDevice(profile, kind.name);
      if (found == nullptr) continue;
      kinds_.emplace_back(graph, kind, found->first, found->second, signatures, types, *analytic_);
    }
  }

  OperatorTime Time(NodeId node, const DeviceKind& kind, int64_t samples) const override {
    const auto costs = std::find_if(kinds_.begin(), kinds_.end(),
                                    [&](const auto& known) { return known.kind() == kind.name; });
    if (costs == kinds_.end()) return analytic_->Time(node, kind, samples);
    if (samples <= 0) return {};
    OperatorTime time;
    if (const auto& curves = costs->curves(node)) {
      const auto n = static_cast<double>(samples);
      const double slowdown = costs->scale(node);
      time.forward = Nanos(std::round(curves->forward.At(n) * slowdown));
      time.backward_input = Nanos(std::round(curves->backward_input.At(n) * slowdown));
      time.backward_weight = Nanos(std::round(curves->backward_weight.At(n) * slowdown));
    } else {
      time = analytic_->Time(node, kind, samples);
      time.forward = Scaled(time.forward, costs->scale(node));
      time.backward_input = Scaled(time.backward_input, costs->scale(node));
      time.backward_weight = Scaled(time.backward_weight, costs->scale(node));
    }
    time.backward = time.backward_input + time.backward_weight;
    return time;
  }

  Precision precision() const override { return analytic_->precision(); }

  Bytes SavedBytes(NodeId node, int64_t samples) const override {
    return analytic_->SavedBytes(node, samples) + Beyond(node, samples, &MeasuredCurves::kept);
  }

  Bytes WorkspaceBytes(NodeId node, int64_t samples) const override {
    return analytic_->WorkspaceBytes(node, samples) +
           Beyond(node, samples, &MeasuredCurves::workspace);
  }

  std::string Description() const override {
    if (kinds_.empty())
      return absl::StrCat(analytic_->Description(), "; no device kind has a profile");
    std::vector<std::string> parts;
    bool all = true;
    for (const KindCosts& kind : kinds_) {
      parts.push_back(kind.Coverage());
      all &= kind.all_covered();
    }
    return absl::StrCat("profile of ", absl::StrJoin(parts, " and of "),
                        all ? "" : absl::StrCat("; others ", analytic_->Description(), ", scaled"));
  }

 private:
  Bytes Beyond(NodeId node, int64_t samples, MonotoneCurve MeasuredCurves::*curve) const {
    double most = 0;
    if (samples <= 0) return 0;
    for (const KindCosts& kind : kinds_) {
      if (const auto& curves = kind.curves(node))
        most = std::max(most, ((*curves).*curve).At(static_cast<double>(samples)));
    }
    return Bytes(std::ceil(most));
  }

  std::unique_ptr<CostModel> analytic_;
  std::vector<KindCosts> kinds_;
};

}  // namespace

std::unique_ptr<CostModel> MakeProfiledCostModel(const Graph& graph,
                                                 std::span<const DeviceKind> kinds,
                                                 const OperatorProfile& profile,
                                                 std::unique_ptr<CostModel> analytic) {
  return std::make_unique<ProfiledCostModel>(graph, kinds, profile, std::move(analytic));
}

}  // namespace stagewright
