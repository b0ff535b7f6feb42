#include "common/policies/execution.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagewright {
namespace {

// Walks the proposals of all devices.
class Runner {
 public:
  Runner(const Pipeline& pipeline, std::vector<DeviceOrder> proposals)
      : execution_(pipeline), proposals_(std::move(proposals)) {
    for (const DeviceOrder& order : proposals_) {
      Row& row = rows_.emplace_back();
      row.taken.assign(order.steps.size(), false);
      result_.push_back({order.device, {}});
      result_.back().steps.reserve(order.steps.size());
    }
  }

  std::vector<DeviceOrder> Run() {
    do {
      while (Advance()) {
      }
    } while (TakeEarly());
    return std::move(result_);
  }

 private:
  struct Row {
    size_t next = 0;  // First step not taken.
    std::vector<bool> taken;
  };

  bool Ready(size_t d, const ComputeStep& step) const {
    const DeviceId device = proposals_[d].device;
    return execution_.Next(step.stage, device, step.pass) == step.index &&
           execution_.Ready(step.stage, device, step.pass);
  }

  void Take(size_t d, size_t index) {
    Row& row = rows_[d];
    const ComputeStep& step = proposals_[d].steps[index];
    execution_.Run(proposals_[d].device, step);
    result_[d].steps.push_back(step);
    row.taken[index] = true;
    while (row.next < row.taken.size() && row.taken[row.next]) ++row.next;
  }

  // Every device as far as its order lets it; whether any got on.
  bool Advance() {
    bool moved = false;
    for (size_t d = 0; d < rows_.size(); ++d) {
      const std::vector<ComputeStep>& steps = proposals_[d].steps;
      while (rows_[d].next < steps.size() && Ready(d, steps[rows_[d].next])) {
        Take(d, rows_[d].next);
        moved = true;
      }
    }
    return moved;
  }

  // All wait: the step that is nearest to its turn goes first. False if nothing is left.
  bool TakeEarly() {
    size_t best = rows_.size();
    size_t best_index = 0;
    size_t least = std::numeric_limits<size_t>::max();
    for (size_t d = 0; d < rows_.size(); ++d) {
      const std::vector<ComputeStep>& steps = proposals_[d].steps;
      for (size_t i = rows_[d].next; i < steps.size() && i - rows_[d].next < least; ++i) {
        if (rows_[d].taken[i] || !Ready(d, steps[i])) continue;
        best = d;
        best_index = i;
        least = i - rows_[d].next;
      }
    }
    if (best == rows_.size()) return false;
    Take(best, best_index);
    return true;
  }

  Execution execution_;
  std::vector<DeviceOrder> proposals_;
  std::vector<Row> rows_;
  std::vector<DeviceOrder> result_;
};

}  // namespace

absl::StatusOr<Pipeline> MakePipeline(const Graph& graph, const Strategy& strategy) {
  Pipeline pipeline;
  for (size_t s = 0; s < strategy.stages.size(); ++s) {
    const Stage& stage = strategy.stages[s];
    if (stage.micro_batch != strategy.stages[0].micro_batch) {
      return absl::FailedPreconditionError(absl::StrCat(
          "stage ", s, " has micro-batches of ", stage.micro_batch, " samples and stage 0 of ",
          strategy.stages[0].micro_batch, "; this schedule needs equal ones"));
    }
    Pipeline::Node& node = pipeline.stages.emplace_back();
    node.devices = stage.devices;
    node.has_backward = HasBackward(graph, stage);
    node.recompute = stage.recompute && node.has_backward;
    for (DeviceId device : stage.devices)
      pipeline.devices[device].push_back(StageId(static_cast<int64_t>(s)));
    pipeline.micro_batches = strategy.mini_batch / stage.micro_batch;
  }
  for (const StageEdge& edge : strategy.edges) {
    pipeline.stages[edge.from.index()].after.push_back(edge.to);
    pipeline.stages[edge.to.index()].before.push_back(edge.from);
    if (pipeline.stages[edge.to.index()].has_backward)
      pipeline.stages[edge.from.index()].gradients.push_back(edge.to);
  }
  for (auto node = pipeline.stages.rbegin(); node != pipeline.stages.rend(); ++node) {
    for (StageId next : node->after)
      node->depth = std::max(node->depth, pipeline.stages[next.index()].depth + 1);
    pipeline.depth = std::max(pipeline.depth, node->depth);
  }
  return pipeline;
}

Execution::Execution(const Pipeline& pipeline) : pipeline_(pipeline) {
  for (const Pipeline::Node& stage : pipeline.stages)
    counts_.emplace_back(stage.devices.size(), Counts{});
}

size_t Execution::Replica(StageId stage, DeviceId device) const {
  const std::vector<DeviceId>& devices = pipeline_.stages[stage.index()].devices;
  const auto replica = std::find(devices.begin(), devices.end(), device);
  CHECK(replica != devices.end());
  return static_cast<size_t>(replica - devices.begin());
}

int64_t Execution::Next(StageId stage, DeviceId device, Pass pass) const {
  return counts_[stage.index()][Replica(stage, device)][static_cast<size_t>(pass)];
}

int64_t Execution::Done(StageId stage, bool forward) const {
  int64_t done = pipeline_.micro_batches;
  for (const Counts& counts : counts_[stage.index()]) {
    const auto of = [&](Pass pass) { return counts[static_cast<size_t>(pass)]; };
    done = std::min(done, forward ? of(Pass::kForward)
                                  : std::max(of(Pass::kBackward), of(Pass::kBackwardInput)));
  }
  return done;
}

bool Execution::Ready(StageId stage, DeviceId device, Pass pass) const {
  const Pipeline::Node& node = pipeline_.stages[stage.index()];
  const int64_t next = Next(stage, device, pass);
  if (next >= pipeline_.micro_batches) return false;
  const auto done = [&](Pass other) { return Next(stage, device, other) > next; };
  const auto fed = [&](const std::vector<StageId>& from, bool forward) {
    return std::all_of(from.begin(), from.end(),
                       [&](StageId s) { return Done(s, forward) > next; });
  };
  switch (pass) {
    case Pass::kForward:
      return fed(node.before, true);
    case Pass::kRecompute:
      return done(Pass::kForward);
    case Pass::kBackward:
    case Pass::kBackwardInput:
      return done(node.recompute ? Pass::kRecompute : Pass::kForward) && fed(node.gradients, false);
    case Pass::kBackwardWeight:
      return done(Pass::kBackwardInput);
  }
  CHECK(false);
}

void Execution::Run(DeviceId device, const ComputeStep& step) {
  Counts& counts = counts_[step.stage.index()][Replica(step.stage, device)];
  CHECK(counts[static_cast<size_t>(step.pass)] == step.index);
  ++counts[static_cast<size_t>(step.pass)];
}

std::vector<DeviceOrder> MakeRunnable(const Pipeline& pipeline,
                                      std::vector<DeviceOrder> proposals) {
  return Runner(pipeline, std::move(proposals)).Run();
}

}  // namespace stagewright
