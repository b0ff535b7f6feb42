#include "common/lowering/compute_order.h"

#include <algorithm>

#include "common/base/check.h"

namespace stagewright {
namespace {

// One replica of one stage: its tasks in order and how far the list schedule has got.
struct ReplicaTasks {
  StageId stage;
  int32_t distance = 0;  // Edges on the longest path to a sink.
  std::vector<Task> tasks;
  size_t next = 0;
  size_t backwards = 0;  // Done so far.

  bool done() const { return next == tasks.size(); }
};

std::vector<Task> TasksOf(const Strategy& strategy, const ProgramStage& stage, const Slots& slots,
                          StageId id, int32_t replica) {
  const Stage& planned = strategy.stages[id.index()];
  const std::vector<MicroBatchTask> order =
      StageOrder(strategy.mini_batch / planned.micro_batch, planned.micro_batch, planned.schedule,
                 stage.has_backward);
  std::vector<Task> tasks;
  tasks.reserve(order.size());
  for (const MicroBatchTask& task : order) {
    const int32_t slot = slots.at(id, task.index, replica);
    if (!task.backward) {
      tasks.push_back({ActionKind::kForward, slot});
      continue;
    }
    if (planned.recompute) tasks.push_back({ActionKind::kRecompute, slot});
    tasks.push_back({ActionKind::kBackward, slot});
  }
  return tasks;
}

// Edges on the longest path from each stage to a sink. Stages are in topological order.
std::vector<int32_t> DistanceToSink(const Strategy& strategy) {
  std::vector<int32_t> distance(strategy.stages.size(), 0);
  std::vector<StageEdge> edges = strategy.edges;
  std::sort(edges.begin(), edges.end());
  for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
    int32_t& from = distance[edge->from.index()];
    from = std::max(from, distance[edge->to.index()] + 1);
  }
  return distance;
}

// The list schedule in unit time.
class Merger {
 public:
  // `summed`, by stage: how many replicas sum the gradients of a pass before the next one; 0: none.
  Merger(const Slots& slots, const Channels& channels, std::vector<int32_t> summed,
         std::vector<std::vector<ReplicaTasks>>& replicas)
      : channels_(channels),
        summed_(std::move(summed)),
        backwards_(summed_.size()),
        replicas_(replicas) {
    missing_forward_.assign(slots.size(), 0);
    missing_backward_.assign(slots.size(), 0);
    for (const Piece& piece : channels.pieces) {
      ++missing_forward_[piece.consumer];
      if (HasGradient(piece)) ++missing_backward_[piece.producer];
    }
  }

  std::vector<std::vector<Task>> Run() {
    std::vector<std::vector<Task>> orders(replicas_.size());
    std::vector<ReplicaTasks*> done;  // Who has done a task in the current unit of time.
    do {
      done.clear();
      for (size_t d = 0; d < replicas_.size(); ++d) {
        ReplicaTasks* replica = Choose(replicas_[d]);
        if (replica == nullptr) continue;
        done.push_back(replica);
        orders[d].push_back(replica->tasks[replica->next++]);
      }
      for (ReplicaTasks* replica : done) Complete(*replica);
    } while (!done.empty());
    // Only a schedule that deadlocks by itself leaves tasks; Validate reports it.
    for (size_t d = 0; d < replicas_.size(); ++d) {
      for (ReplicaTasks& replica : replicas_[d])
        orders[d].insert(orders[d].end(), replica.tasks.begin() + replica.next,
                         replica.tasks.end());
    }
    return orders;
  }

 private:
  bool HasGradient(const Piece& piece) const {
    return channels_.channels[piece.channel].has_gradient;
  }

  bool Ready(const ReplicaTasks& replica) const {
    const Task& task = replica.tasks[replica.next];
    const auto& missing = task.kind == ActionKind::kForward ? missing_forward_ : missing_backward_;
    return missing[task.slot] == 0 && IsSummed(replica);
  }

  // Whether what the replicas' passes so far have made is.
  bool IsSummed(const ReplicaTasks& replica) const {
    const size_t stage = replica.stage.index();
    return summed_[stage] == 0 || replica.backwards == 0 ||
           backwards_[stage][replica.backwards - 1] == summed_[stage];
  }

  ReplicaTasks* Choose(std::vector<ReplicaTasks>& replicas) const {
    ReplicaTasks* best = nullptr;
    for (ReplicaTasks& replica : replicas) {
      if (replica.done() || !Ready(replica)) continue;
      if (best == nullptr || Better(replica, *best)) best = &replica;
    }
    return best;
  }

  // Backwards go first, since they free memory. Nearest the sink comes first: its forwards let
  // backwards start, and other backwards wait for its backwards. Ties: the later stage.
  static bool Better(const ReplicaTasks& a, const ReplicaTasks& b) {
    const bool a_forward = a.tasks[a.next].kind == ActionKind::kForward;
    const bool b_forward = b.tasks[b.next].kind == ActionKind::kForward;
    if (a_forward != b_forward) return !a_forward;
    if (a.distance != b.distance) return a.distance < b.distance;
    return a.stage > b.stage;
  }

  void Complete(ReplicaTasks& replica) {
    const Task& task = replica.tasks[replica.next - 1];
    if (task.kind == ActionKind::kForward) {
      for (int32_t p : channels_.OutOf(task.slot)) --missing_forward_[channels_.pieces[p].consumer];
    } else if (task.kind == ActionKind::kBackward) {
      for (int32_t p : channels_.Into(task.slot)) {
        if (HasGradient(channels_.pieces[p])) --missing_backward_[channels_.pieces[p].producer];
      }
      std::vector<int32_t>& done = backwards_[replica.stage.index()];
      done.resize(std::max(done.size(), ++replica.backwards));
      ++done[replica.backwards - 1];
    }
  }

  const Channels& channels_;
  const std::vector<int32_t> summed_;
  std::vector<std::vector<int32_t>> backwards_;  // By stage and which: replicas that have done it.
  std::vector<std::vector<ReplicaTasks>>& replicas_;
  std::vector<int32_t> missing_forward_, missing_backward_;  // Unfinished inputs, by slot.
};

// By stage: how many replicas sum the gradients of every micro-batch.
std::vector<int32_t> SummedBy(const Strategy& strategy, const std::vector<ProgramStage>& stages) {
  std::vector<int32_t> summed(stages.size(), 0);
  if (strategy.optimizer_sharding != OptimizerSharding::kGradients) return summed;
  for (size_t s = 0; s < stages.size(); ++s) {
    const auto replicas = static_cast<int32_t>(stages[s].devices.size());
    if (replicas > 1 && stages[s].has_backward) summed[s] = replicas;
  }
  return summed;
}

ActionKind KindOf(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return ActionKind::kForward;
    case Pass::kRecompute:
      return ActionKind::kRecompute;
    case Pass::kBackward:
      return ActionKind::kBackward;
    case Pass::kBackwardInput:
      return ActionKind::kBackwardInput;
    case Pass::kBackwardWeight:
      return ActionKind::kBackwardWeight;
  }
  CHECK(false);
}

std::vector<std::vector<Task>> ExplicitOrders(const Strategy& strategy,
                                              const std::vector<ProgramStage>& stages,
                                              const Slots& slots) {
  std::vector<std::vector<Task>> orders;
  for (const DeviceOrder& order : strategy.orders) {
    orders.resize(order.device.index() + 1);
    std::vector<int32_t> replica(stages.size(), 0);
    for (size_t s = 0; s < stages.size(); ++s) {
      const auto& devices = stages[s].devices;
      replica[s] = static_cast<int32_t>(std::find(devices.begin(), devices.end(), order.device) -
                                        devices.begin());
    }
    for (const ComputeStep& step : order.steps) {
      const size_t s = step.stage.index();
      if (step.pass != Pass::kForward && !stages[s].has_backward) continue;
      orders.back().push_back({KindOf(step.pass), slots.at(step.stage, step.index, replica[s])});
    }
  }
  return orders;
}

}  // namespace

std::vector<MicroBatchTask> StageOrder(int64_t micro_batches, int64_t micro_batch,
                                       const StageSchedule& schedule, bool has_backward) {
  std::vector<MicroBatchTask> order;
  int64_t forwards = 0;
  int64_t backwards = 0;
  const auto forward_until = [&](int64_t end) {
    for (; forwards < std::min(end, micro_batches); ++forwards) order.push_back({false, forwards});
  };
  if (!has_backward) {
    forward_until(micro_batches);
    return order;
  }
  order.reserve(2 * micro_batches);
  forward_until(std::max<int64_t>(schedule.in_flight / micro_batch, 1));
  while (backwards < micro_batches) {
    const int64_t end = std::min(backwards + schedule.k, forwards);
    for (; backwards < end; ++backwards) order.push_back({true, backwards});
    forward_until(forwards + schedule.k);
  }
  return order;
}

std::vector<std::vector<Task>> DeviceOrders(const Strategy& strategy,
                                            const std::vector<ProgramStage>& stages,
                                            const Slots& slots, const Channels& channels) {
  if (!strategy.orders.empty()) return ExplicitOrders(strategy, stages, slots);
  const std::vector<int32_t> distance = DistanceToSink(strategy);
  std::vector<std::vector<ReplicaTasks>> replicas;
  bool shared = false;
  for (size_t s = 0; s < stages.size(); ++s) {
    const StageId id(static_cast<int64_t>(s));
    for (size_t r = 0; r < stages[s].devices.size(); ++r) {
      const size_t device = stages[s].devices[r].index();
      if (replicas.size() <= device) replicas.resize(device + 1);
      shared = shared || !replicas[device].empty();
      replicas[device].push_back(
          {id, distance[s], TasksOf(strategy, stages[s], slots, id, static_cast<int32_t>(r))});
    }
  }
  if (shared) return Merger(slots, channels, SummedBy(strategy, stages), replicas).Run();
  std::vector<std::vector<Task>> orders(replicas.size());
  for (size_t d = 0; d < replicas.size(); ++d) {
    if (!replicas[d].empty()) orders[d] = std::move(replicas[d].front().tasks);
  }
  return orders;
}

std::vector<TaskSections> AsynchronousOrders(const Strategy& strategy,
                                             const std::vector<ProgramStage>& stages,
                                             const Slots& slots) {
  std::vector<TaskSections> orders;
  for (size_t s = 0; s < stages.size(); ++s) {
    const StageId id(static_cast<int64_t>(s));
    const Stage& planned = strategy.stages[s];
    const int64_t micro_batches = strategy.mini_batch / planned.micro_batch;
    const int64_t micro_batches_in_flight = planned.schedule.in_flight / planned.micro_batch;
    for (size_t r = 0; r < stages[s].devices.size(); ++r) {
      const size_t device = stages[s].devices[r].index();
      if (orders.size() <= device) orders.resize(device + 1);
      TaskSections& sections = orders[device];
      const auto slot = [&](int64_t m) { return slots.at(id, m, static_cast<int32_t>(r)); };
      for (int64_t m = 0; m < micro_batches_in_flight; ++m)
        sections.prologue.push_back({ActionKind::kForward, slot(m)});
      for (int64_t m = 0; m < micro_batches; ++m) {
        std::vector<Task> round;
        if (stages[s].has_backward && planned.recompute)
          round.push_back({ActionKind::kRecompute, slot(m)});
        if (stages[s].has_backward) round.push_back({ActionKind::kBackward, slot(m)});
        sections.body.insert(sections.body.end(), round.begin(), round.end());
        sections.epilogue.insert(sections.epilogue.end(), round.begin(), round.end());
        const int64_t next = m + micro_batches_in_flight;
        const bool next_step = next >= micro_batches;
        const Task forward = {ActionKind::kForward, slot(next % micro_batches), next_step};
        sections.body.push_back(forward);
        if (!next_step) sections.epilogue.push_back(forward);
      }
    }
  }
  return orders;
}

}  // namespace stagewright
