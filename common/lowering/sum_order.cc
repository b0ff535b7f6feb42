#include "common/lowering/sum_order.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "common/lowering/lowering_context.h"

namespace stagewright {
namespace {

// Passes and sums, and what each waits for.
class Waits {
 public:
  Waits(const std::vector<std::vector<Task>>& orders, const std::vector<ProgramStage>& stages,
        const Slots& slots, const std::vector<bool>& summed)
      : stages_(stages),
        slots_(slots),
        summed_(summed),
        forward_(slots.size(), -1),
        gradients_(slots.size(), -1),
        sum_(slots.size(), -1) {
    AddSums();
    for (const std::vector<Task>& order : orders) AddLane(order);
  }

  void AddMessages(const Channels& channels) {
    for (const Piece& piece : channels.pieces) {
      AddWait(forward_[piece.producer], forward_[piece.consumer]);
      if (channels.channels[piece.channel].has_gradient)
        AddWait(gradients_[piece.consumer], gradients_[piece.producer]);
    }
  }

  std::vector<MicroBatchSum> InOrder() {
    FindTimes();
    std::vector<size_t> order(sums_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto key = [&](size_t i) {
      return std::tuple(times_[i], -sums_[i].stage.value(), sums_[i].index);
    };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    std::vector<MicroBatchSum> sums;
    for (size_t i : order) sums.push_back(sums_[i]);
    return sums;
  }

 private:
  // The first nodes, in the order of `sums_`.
  void AddSums() {
    for (size_t s = 0; s < stages_.size(); ++s) {
      if (!summed_[s]) continue;
      const StageId stage(static_cast<int64_t>(s));
      const auto replicas = static_cast<int32_t>(stages_[s].devices.size());
      for (int32_t slot = slots_.first(stage); slot < slots_.end(stage); ++slot) {
        if ((slot - slots_.first(stage)) % replicas == 0) {
          AddNode();
          sums_.push_back({stage, (slot - slots_.first(stage)) / replicas});
        }
        sum_[slot] = static_cast<int32_t>(sums_.size()) - 1;
      }
    }
  }

  void AddLane(const std::vector<Task>& order) {
    std::vector<int32_t> awaited(stages_.size(), -1);  // By stage: the sum of its pass before.
    int32_t last = -1;
    for (const Task& task : order) {
      const int32_t node = AddNode();
      AddWait(last, node);
      last = node;
      if (task.kind == ActionKind::kForward) forward_[task.slot] = node;
      if (MakesGradients(task.kind)) gradients_[task.slot] = node;
      int32_t& sum = awaited[slots_[task.slot].stage.index()];
      AddWait(std::exchange(sum, -1), node);
      if (!EndsBackward(task.kind)) continue;
      sum = sum_[task.slot];
      AddWait(node, sum);
    }
  }

  int32_t AddNode() {
    next_.emplace_back();
    missing_.push_back(0);
    return static_cast<int32_t>(next_.size()) - 1;
  }

  void AddWait(int32_t before, int32_t after) {
    if (before < 0 || after < 0) return;
    next_[before].push_back(after);
    ++missing_[after];
  }

  void FindTimes() {
    times_.assign(next_.size(), std::numeric_limits<int32_t>::max());
    std::vector<int32_t> ready;
    for (size_t i = 0; i < next_.size(); ++i) {
      if (missing_[i] == 0) ready.push_back(static_cast<int32_t>(i));
    }
    std::vector<int32_t> later;
    for (int32_t time = 0; !ready.empty(); ++time) {
      later.clear();
      for (int32_t node : ready) {
        times_[node] = time;
        for (int32_t after : next_[node]) {
          if (--missing_[after] == 0) later.push_back(after);
        }
      }
      ready.swap(later);
    }
  }

  const std::vector<ProgramStage>& stages_;
  const Slots& slots_;
  const std::vector<bool>& summed_;
  std::vector<MicroBatchSum> sums_;
  std::vector<int32_t> forward_, gradients_, sum_;  // Nodes, by slot; -1: none.
  std::vector<std::vector<int32_t>> next_;          // By node: who waits for it.
  std::vector<int32_t> missing_;                    // By node: for how many others it waits.
  std::vector<int32_t> times_;                      // By node, in passes.
};

}  // namespace

std::vector<MicroBatchSum> SumOrder(const std::vector<std::vector<Task>>& orders,
                                    const std::vector<ProgramStage>& stages, const Slots& slots,
                                    const Channels& channels, const std::vector<bool>& summed) {
  if (std::find(summed.begin(), summed.end(), true) == summed.end()) return {};
  Waits waits(orders, stages, slots, summed);
  waits.AddMessages(channels);
  return waits.InOrder();
}

}  // namespace stagewright
