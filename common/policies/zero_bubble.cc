// Zero-bubble schedules. H1 follows from counters alone. Where devices have several stages, and for
// V, the orders are greedy executions in unit time: every pass (forward, input half, weight half,
// recomputation) takes one unit. In every unit an idle device takes, of the steps that can run, an
// input half before a forward before a weight half, so weight halves fill what would be bubbles,
// and forwards as far as the limits on memory let them. A micro-batch counts against them from its
// forward pass to its weight half.
#include "common/policies/zero_bubble.h"

#include <algorithm>
#include <optional>

#include "common/policies/execution.h"

namespace stagewright {
namespace {

struct Limits {
  std::vector<int64_t> micro_batches_in_flight;  // By stage: between forward and input half.
  // Micro-batches between forward and weight half, at most: on each device for each stage if
  // `per_stage`, else for all its stages together.
  int64_t held = 1;
  bool per_stage = true;
};

class Greedy {
 public:
  Greedy(const Pipeline& pipeline, const Limits& limits)
      : pipeline_(pipeline), limits_(limits), execution_(pipeline) {
    for (const auto& [device, stages] : pipeline.devices) orders_.push_back({device, {}});
  }

  std::vector<DeviceOrder> Run() {
    for (;;) {
      std::vector<std::optional<ComputeStep>> chosen = ChooseAll(true);
      const auto none = [&] {
        return std::none_of(chosen.begin(), chosen.end(), [](const auto& s) { return s; });
      };
      if (none()) {  // Ended, or held up by limits that this graph cannot keep.
        chosen = ChooseAll(false);
        if (none()) return std::move(orders_);
        const auto first =
            std::find_if(chosen.begin(), chosen.end(), [](const auto& s) { return s.has_value(); });
        std::fill(first + 1, chosen.end(), std::nullopt);
      }
      for (size_t d = 0; d < chosen.size(); ++d) {
        if (!chosen[d]) continue;
        orders_[d].steps.push_back(*chosen[d]);
        execution_.Run(orders_[d].device, *chosen[d]);
      }
    }
  }

 private:
  std::vector<std::optional<ComputeStep>> ChooseAll(bool limited) const {
    std::vector<std::optional<ComputeStep>> chosen;
    for (const auto& [device, stages] : pipeline_.devices)
      chosen.push_back(Choose(device, stages, limited));
    return chosen;
  }

  std::optional<ComputeStep> Choose(DeviceId device, const std::vector<StageId>& stages,
                                    bool limited) const {
    for (Pass pass :
         {Pass::kBackwardInput, Pass::kRecompute, Pass::kForward, Pass::kBackwardWeight}) {
      // The later stage first: what it does lets backward passes start.
      for (auto s = stages.rbegin(); s != stages.rend(); ++s) {
        if (!Applies(*s, pass) || !execution_.Ready(*s, device, pass)) continue;
        if (pass == Pass::kRecompute && !GradientsAreThere(*s, device)) continue;
        if (pass == Pass::kForward && limited && !HasRoom(*s, device, stages)) continue;
        return ComputeStep{*s, pass, execution_.Next(*s, device, pass)};
      }
    }
    return std::nullopt;
  }

  bool Applies(StageId stage, Pass pass) const {
    const Pipeline::Node& node = pipeline_.stages[stage.index()];
    return pass == Pass::kForward ||
           (pass == Pass::kRecompute ? node.recompute : node.has_backward);
  }

  // A recomputation takes memory, so it waits until the input half could follow it.
  bool GradientsAreThere(StageId stage, DeviceId device) const {
    const int64_t next = execution_.Next(stage, device, Pass::kRecompute);
    const auto& after = pipeline_.stages[stage.index()].gradients;
    return next == execution_.Next(stage, device, Pass::kBackwardInput) &&
           std::all_of(after.begin(), after.end(),
                       [&](StageId s) { return execution_.Done(s, false) > next; });
  }

  int64_t Held(StageId stage, DeviceId device) const {
    if (!pipeline_.stages[stage.index()].has_backward) return 0;
    return execution_.Next(stage, device, Pass::kForward) -
           execution_.Next(stage, device, Pass::kBackwardWeight);
  }

  bool HasRoom(StageId stage, DeviceId device, const std::vector<StageId>& stages) const {
    if (!pipeline_.stages[stage.index()].has_backward) return true;
    const int64_t micro_batches_in_flight = execution_.Next(stage, device, Pass::kForward) -
                                            execution_.Next(stage, device, Pass::kBackwardInput);
    if (!limits_.micro_batches_in_flight.empty() &&
        micro_batches_in_flight >= limits_.micro_batches_in_flight[stage.index()])
      return false;
    if (limits_.per_stage) return Held(stage, device) < limits_.held;
    // Leaves a place for every later stage of the device, so that what is in flight can pass.
    int64_t taken = 1;
    for (StageId s : stages) taken += Held(s, device) + (s > stage ? 1 : 0);
    return taken <= limits_.held;
  }

  const Pipeline& pipeline_;
  const Limits& limits_;
  Execution execution_;
  std::vector<DeviceOrder> orders_;
};

// H1 for a device with one stage: 1F1B with input halves in place of backwards, each followed by
// the weight half of as many micro-batches before as the stage has less in flight than the first.
std::vector<ComputeStep> OneStage(const Pipeline& pipeline, StageId stage) {
  const Pipeline::Node& node = pipeline.stages[stage.index()];
  const int64_t all = pipeline.micro_batches;
  const int64_t delay = pipeline.depth - node.depth;
  std::vector<ComputeStep> steps;
  int64_t forwards = 0;
  const auto forward_until = [&](int64_t end) {
    for (; forwards < std::min(end, all); ++forwards)
      steps.push_back({stage, Pass::kForward, forwards});
  };
  if (!node.has_backward) {
    forward_until(all);
    return steps;
  }
  forward_until(node.depth);
  for (int64_t m = 0; m < all; ++m) {
    if (node.recompute) steps.push_back({stage, Pass::kRecompute, m});
    steps.push_back({stage, Pass::kBackwardInput, m});
    if (m >= delay) steps.push_back({stage, Pass::kBackwardWeight, m - delay});
    forward_until(forwards + 1);
  }
  for (int64_t m = std::max<int64_t>(all - delay, 0); m < all; ++m)
    steps.push_back({stage, Pass::kBackwardWeight, m});
  return steps;
}

}  // namespace

absl::StatusOr<std::vector<DeviceOrder>> ZeroBubbleH1Orders(const Graph& graph,
                                                            const Strategy& strategy) {
  ASSIGN_OR_RETURN(const Pipeline pipeline, MakePipeline(graph, strategy));
  const bool shared = std::any_of(pipeline.devices.begin(), pipeline.devices.end(),
                                  [](const auto& entry) { return entry.second.size() > 1; });
  if (shared) {
    Limits limits;
    for (const Pipeline::Node& stage : pipeline.stages)
      limits.micro_batches_in_flight.push_back(stage.depth);
    limits.held = pipeline.depth;
    return Greedy(pipeline, limits).Run();
  }
  std::vector<DeviceOrder> orders;
  for (const auto& [device, stages] : pipeline.devices)
    orders.push_back({device, OneStage(pipeline, stages.front())});
  return MakeRunnable(pipeline, std::move(orders));
}

absl::StatusOr<std::vector<DeviceOrder>> ZeroBubbleVOrders(const Graph& graph,
                                                           const Strategy& strategy) {
  ASSIGN_OR_RETURN(const Pipeline pipeline, MakePipeline(graph, strategy));
  Limits limits;
  limits.held = pipeline.depth;
  limits.per_stage = false;
  return Greedy(pipeline, limits).Run();
}

}  // namespace stagewright
