#include "tests/support/random_orders.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "common/strategy/orders.h"

namespace stagewright::testing {
namespace {

// One stage on one device: how many micro-batches each pass has done.
struct Progress {
  std::array<int64_t, static_cast<size_t>(kLastPass) + 1> done = {};
  int64_t& Of(Pass pass) { return done[static_cast<size_t>(pass)]; }
  int64_t Backwards() { return std::max(Of(Pass::kBackward), Of(Pass::kBackwardInput)); }
};

// A random execution of a strategy, micro-batch by micro-batch.
class Execution {
 public:
  Execution(Rng& rng, const Graph& graph, const Strategy& strategy)
      : rng_(rng), strategy_(strategy) {
    for (const Stage& stage : strategy.stages) {
      has_backward_.push_back(HasBackward(graph, stage));
      split_.push_back(Uniform(rng, 0, 1) == 0);
      for (DeviceId device : stage.devices) orders_[device].device = device;
    }
    progress_.resize(strategy.stages.size());
  }

  std::vector<DeviceOrder> Run() {
    for (;;) {
      std::vector<std::pair<DeviceId, ComputeStep>> ready;
      for (size_t s = 0; s < strategy_.stages.size(); ++s) {
        for (DeviceId device : strategy_.stages[s].devices) AddReady(s, device, ready);
      }
      if (ready.empty()) break;
      const auto& [device, step] =
          ready[static_cast<size_t>(Uniform(rng_, 0, static_cast<int64_t>(ready.size()) - 1))];
      orders_[device].steps.push_back(step);
      ++progress_[step.stage.index()][device].Of(step.pass);
    }
    std::vector<DeviceOrder> orders;
    for (auto& [device, order] : orders_) orders.push_back(std::move(order));
    return orders;
  }

 private:
  void AddReady(size_t s, DeviceId device, std::vector<std::pair<DeviceId, ComputeStep>>& ready) {
    const Stage& stage = strategy_.stages[s];
    Progress& at = progress_[s][device];
    const auto add = [&](Pass pass, int64_t limit) {
      const int64_t next = at.Of(pass);
      if (next >= limit) return;
      const int64_t end = (next + 1) * stage.micro_batch;
      const bool backward = pass == Pass::kBackward || pass == Pass::kBackwardInput;
      if (pass == Pass::kForward && !Fed(s, end, true)) return;
      if (backward && !Fed(s, end, false)) return;
      ready.push_back({device, {StageId(static_cast<int64_t>(s)), pass, next}});
    };
    add(Pass::kForward, strategy_.mini_batch / stage.micro_batch);
    if (!has_backward_[s]) return;
    const int64_t forwards = at.Of(Pass::kForward);
    if (stage.recompute) add(Pass::kRecompute, forwards);
    const int64_t kept = stage.recompute ? at.Of(Pass::kRecompute) : forwards;
    add(split_[s] ? Pass::kBackwardInput : Pass::kBackward, kept);
    if (split_[s]) add(Pass::kBackwardWeight, at.Of(Pass::kBackwardInput));
  }

  // The neighbours have done the samples before `end`.
  bool Fed(size_t s, int64_t end, bool forward) {
    for (const StageEdge& edge : strategy_.edges) {
      if ((forward ? edge.to : edge.from).index() != s) continue;
      const size_t other = (forward ? edge.from : edge.to).index();
      if (!forward && !has_backward_[other]) continue;
      const Stage& stage = strategy_.stages[other];
      for (DeviceId device : stage.devices) {
        Progress& at = progress_[other][device];
        const int64_t done = forward ? at.Of(Pass::kForward) : at.Backwards();
        if (done * stage.micro_batch < end) return false;
      }
    }
    return true;
  }

  Rng& rng_;
  const Strategy& strategy_;
  std::vector<bool> has_backward_, split_;
  std::vector<std::map<DeviceId, Progress>> progress_;  // By stage.
  std::map<DeviceId, DeviceOrder> orders_;
};

}  // namespace

void DrawOrders(Rng& rng, const Graph& graph, Strategy& strategy) {
  SetOrders(graph, Execution(rng, graph, strategy).Run(), strategy);
}

}  // namespace stagewright::testing
