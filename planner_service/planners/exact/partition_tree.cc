#include "planner_service/planners/exact/partition_tree.h"

#include <algorithm>

namespace stagewright {
namespace {

constexpr int64_t kNodesBetweenPolls = 4096;

}  // namespace

PartitionTree::PartitionTree(const OperatorCosts& costs, const StageTimes& times,
                             const SearchContext& context)
    : dag_(costs.problem().operators->dag()),
      cluster_(*costs.problem().cluster),
      costs_(costs),
      times_(times),
      context_(context),
      values_of_(costs.size()),
      stage_of_(costs.size(), -1) {
  const auto count = static_cast<double>(times.micro_batches);
  const int32_t n = dag_.size();
  rest_.assign(n + 1, 0);
  for (int32_t p = n - 1; p >= 0; --p) {
    double least = 1e300;
    for (const StageTimes::Row& row : times.rows) {
      least = std::min(least, count * row.device_time[dag_.order()[p]]);
    }
    rest_[p] = rest_[p + 1] + least;
  }
  for (const auto& replicas : times.replicas) {
    devices_ += static_cast<double>(replicas.size());
    std::vector<DeviceId>& devices = layout_.emplace_back();
    for (const StageTimes::Replica& replica : replicas) devices.push_back(replica.device);
  }
  for (size_t value = 0; value < costs.values().size(); ++value) {
    for (const CostTable::Use& use : costs.values()[value].uses) {
      values_of_[use.consumer].emplace_back(static_cast<int32_t>(value), use.gradient);
    }
  }
}

double PartitionTree::Least() const { return rest_[0] / devices_; }

bool PartitionTree::VisitLeaves(const double& best, int64_t most_steps, int64_t& steps,
                                const Leaf& leaf) {
  best_ = &best;
  most_steps_ = most_steps;
  steps_ = &steps;
  leaf_ = &leaf;
  if (times_.stages() > dag_.size()) return true;
  return Place(0, State());
}

// Puts an operator into a stage; false if that closes a cycle or exceeds the stage's memory.
bool PartitionTree::Add(int32_t op, int32_t stage, State& state) const {
  Open& open = state.stages[stage];
  for (int32_t u : dag_.Predecessors(op)) {
    const int32_t from = stage_of_[u];
    if (from == stage) continue;
    if ((open.reaches >> from) & 1) return false;
    open.reads |= uint32_t{1} << from;
  }
  // Whatever reaches a stage that is read now reaches this one and what is after it.
  for (int32_t s = 0; s < state.open; ++s) {
    const uint32_t from = state.stages[s].reaches | (uint32_t{1} << s);
    if ((from & open.reads) != 0 && s != stage) {
      state.stages[s].reaches |= open.reaches | (uint32_t{1} << stage);
    }
  }
  for (const auto& [value, gradient] : values_of_[op]) {
    const CostTable::Value& read = costs_.values()[value];
    const int32_t from = stage_of_[read.producer];
    if (from == stage) continue;
    if (gradient) open.gradients_to |= uint32_t{1} << from;
    // A value that another operator of the stage reads is sent once.
    const bool sent = std::any_of(read.uses.begin(), read.uses.end(), [&](const auto& use) {
      return use.consumer != op && stage_of_[use.consumer] == stage;
    });
    if (!sent) state.bytes[from][stage] += read.least_per_sample;
  }
  const StageTimes::Row& row = times_.rows[stage];
  open.forward += row.forward[op];
  open.backward += row.backward[op];
  open.least_forward += row.least_forward[op];
  open.least_backward += row.least_back[op];
  open.device_time += static_cast<double>(times_.micro_batches) * row.device_time[op];
  open.gradients += costs_.held(op).least.gradients;
  open.update += row.update[op];
  open.resident += costs_.held(op).least.resident;
  open.saved += row.saved[op];
  return open.resident + open.saved <= times_.memory[stage];
}

double PartitionTree::Bound(int32_t placed, const State& state) const {
  std::array<double, kMostExactStages> head = {};
  std::array<double, kMostExactStages> tail = {};
  std::array<double, kMostExactStages> update = {};
  const auto message = [&](int32_t from, int32_t to) {
    const StageTimes::Wire& wire = times_.wires[from][to];
    return wire.latency - 1 +
           static_cast<double>(wire.samples * state.bytes[from][to]) * wire.nanos_per_byte;
  };
  for (int32_t s = 0; s < state.open; ++s) {
    const Open& open = state.stages[s];
    update[s] = LeastTail(open.backward, LeastAllReduce(cluster_, layout_[s], open.gradients),
                          times_.rows[s].Step(open.update));
  }
  // Stages are numbered in no particular order; a longest path has at most `open` of them.
  bool changed = true;
  for (int32_t round = 0; changed && round <= state.open; ++round) {
    changed = false;
    for (int32_t i = 0; i < state.open; ++i) {
      for (int32_t p = 0; p < state.open; ++p) {
        if (((state.stages[i].reads >> p) & 1) == 0) continue;
        const double wait = message(p, i);
        const double to_here = head[p] + state.stages[p].least_forward + wait;
        if (to_here > head[i]) {
          head[i] = to_here;
          changed = true;
        }
        if (((state.stages[i].gradients_to >> p) & 1) == 0) continue;
        const double back = times_.wires[p][i].latency - 1 + state.stages[p].least_backward +
                            std::max(tail[p], update[p]);
        if (back > tail[i]) {
          tail[i] = back;
          changed = true;
        }
      }
    }
  }
  const auto count = static_cast<double>(times_.micro_batches);
  double bound = 0;
  double idle = 0;
  double work = rest_[placed];
  for (int32_t s = 0; s < state.open; ++s) {
    const Open& open = state.stages[s];
    const double after = std::max(tail[s], update[s]);
    bound = std::max(bound, head[s] + count * (open.forward + open.backward) + after);
    idle += static_cast<double>(layout_[s].size()) * (head[s] + after);
    work += open.device_time;
  }
  return std::max(bound, (work + idle) / devices_);
}

bool PartitionTree::Place(int32_t position, const State& state) {
  if (position == dag_.size()) return (*leaf_)(stage_of_);
  const int32_t op = dag_.order()[position];
  const int32_t unopened = times_.stages() - state.open;
  const int32_t left = dag_.size() - position;
  for (int32_t s = 0; s <= state.open && s < times_.stages(); ++s) {
    // Every operator that is left may be needed to open a stage.
    if (s < state.open && left == unopened) continue;
    if (++*steps_ > most_steps_) return false;
    if (++nodes_ % kNodesBetweenPolls == 0 && context_.Expired()) return false;
    State next = state;
    if (s == state.open) ++next.open;
    if (Add(op, s, next) && Bound(position + 1, next) < *best_) {
      stage_of_[op] = s;
      const bool go_on = Place(position + 1, next);
      stage_of_[op] = -1;
      if (!go_on) return false;
    }
  }
  return true;
}

}  // namespace stagewright
