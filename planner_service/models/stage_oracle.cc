#include "planner_service/models/stage_oracle.h"

#include <algorithm>
#include <bit>
#include <set>

#include "common/base/check.h"
#include "common/cost/node_weights.h"
#include "common/cost/parameters.h"
#include "common/cost/retention.h"

namespace stagewright {
namespace {

// A call of std::ceil for each range of a search shows in its time.
Bytes CeilBytes(double bytes) {
  const auto whole = static_cast<int64_t>(bytes);
  return Bytes(whole + (static_cast<double>(whole) < bytes ? 1 : 0));
}

}  // namespace

std::vector<OperatorId> ModelOrder(const Problem& problem) {
  const std::vector<int32_t>& order = problem.operators->dag().order();
  return std::vector<OperatorId>(order.begin(), order.end());
}

const DeviceKind& SlowestKind(const Problem& problem, int64_t samples) {
  const DeviceKind* slowest = nullptr;
  double most = -1;
  for (const DeviceKind& kind : problem.cluster->kinds()) {
    const double total = TotalTime(*problem.graph, *problem.costs, kind, samples);
    if (total > most) {
      most = total;
      slowest = &kind;
    }
  }
  return *slowest;
}

Bytes ShareCosts::Workspace(int32_t begin, int32_t end) const {
  const int32_t level = std::bit_width(static_cast<uint32_t>(end - begin)) - 1;
  return std::max(workspace_[level][begin], workspace_[level][end - (1 << level)]);
}

StageOracle::StageOracle(const Problem& problem, std::vector<OperatorId> order)
    : costs_(problem), order_(std::move(order)) {
  CHECK(static_cast<int32_t>(order_.size()) == problem.operators->size());
  const bool one_kind = problem.cluster->kinds().size() == 1;
  kind_ = one_kind ? &problem.cluster->kinds()[0] : &SlowestKind(problem, 1);
  budget_ = problem.cluster->devices()[0].memory;
  for (const Device& device : problem.cluster->devices()) {
    budget_ = std::min(budget_, device.memory);
  }
  std::vector<int32_t> position(size());
  for (int32_t p = 0; p < size(); ++p) position[order_[p].index()] = p;
  CollectValues(position);
  CollectParameters();
  CollectInputs();
  rows_.resize(order_.size() + 1);
  for (auto& row : rows_) row.push_back({});
}

void StageOracle::CollectValues(const std::vector<int32_t>& position) {
  produced_.resize(size());
  consumed_.resize(size());
  for (const CostTable::Value& value : costs_.values()) {
    const auto index = static_cast<int32_t>(values_.size());
    ValueUse& own = values_.emplace_back();
    own.bytes_per_sample = static_cast<double>(value.bytes_per_sample);
    own.held_per_sample = static_cast<double>(value.held_per_sample);
    own.producer = position[value.producer];
    produced_[own.producer].push_back(index);
    for (const CostTable::Use& use : value.uses) {
      own.consumers.push_back(position[use.consumer]);
      consumed_[own.consumers.back()].push_back(index);
    }
    std::sort(own.consumers.begin(), own.consumers.end());
  }
}

void StageOracle::CollectParameters() {
  const Graph& graph = *problem().graph;
  const bool shares_state = problem().optimizer_sharding != OptimizerSharding::kNone;
  const bool passes = problem().optimizer_sharding == OptimizerSharding::kGradients;
  const auto use_of = [&](const HeldBytes& bytes, int32_t next) {
    return ParameterUse{bytes.resident, bytes.gradients, shares_state ? bytes.state : 0,
                        passes ? bytes.gradients : 0, next};
  };
  parameters_.resize(size());
  std::vector<int32_t> next(graph.parameters().size(), size());
  for (int32_t p = size() - 1; p >= 0; --p) {
    const CostTable::Held& held = costs_.held(order_[p].value());
    for (ParameterId id : held.parameters) {
      parameters_[p].push_back(use_of(costs_.held(id), next[id.index()]));
      next[id.index()] = p;
    }
    if (held.profiled.resident == 0 && held.profiled.gradients == 0) continue;
    parameters_[p].push_back(use_of(held.profiled, size()));
  }
}

StageOracle::Extent StageOracle::Grow(const Extent& shorter, int32_t p, int32_t end) const {
  Extent extent = shorter;
  for (int32_t v : produced_[p]) {
    const ValueUse& value = values_[v];
    if (value.consumers.front() < end) extent.in_per_sample -= value.bytes_per_sample;
    const auto beyond = std::lower_bound(value.consumers.begin(), value.consumers.end(), end);
    if (beyond == value.consumers.end()) continue;
    extent.out_per_sample += value.bytes_per_sample;
    extent.held_per_sample += value.held_per_sample;
    extent.returned_per_sample +=
        value.bytes_per_sample * static_cast<double>(value.consumers.end() - beyond);
  }
  for (int32_t v : consumed_[p]) {
    const ValueUse& value = values_[v];
    const auto later = std::upper_bound(value.consumers.begin(), value.consumers.end(), p);
    if (later == value.consumers.end() || *later >= end) {
      extent.in_per_sample += value.bytes_per_sample;
    }
  }
  if (problem().graph->executable())
    extent.copied_per_sample = extent.in_per_sample + 2 * extent.out_per_sample;
  for (const ParameterUse& use : parameters_[p]) {
    if (use.next < end) continue;
    extent.resident += use.resident;
    extent.state += use.state;
    extent.passing += use.passing;
    extent.gradients += use.gradient;
  }
  return extent;
}

void StageOracle::LeastParameters(std::vector<Bytes>& resident,
                                  std::vector<Bytes>& gradients) const {
  resident.assign(1, 0);
  gradients.assign(1, 0);
  for (const std::vector<ParameterUse>& uses : parameters_) {
    resident.push_back(resident.back());
    gradients.push_back(gradients.back());
    for (const ParameterUse& use : uses) {
      if (use.next < size()) continue;
      resident.back() += use.resident - use.state - use.passing;
      gradients.back() += use.gradient;
    }
  }
}

std::vector<CostTable::Exchange> StageOracle::Exchanges(const std::vector<int32_t>& begins) const {
  std::vector<int32_t> range(size());
  for (int32_t p = 0, r = -1; p < size(); ++p) {
    if (r + 1 < std::ssize(begins) && begins[r + 1] == p) ++r;
    range[order_[p].index()] = r;
  }
  return costs_.Exchanges(range);
}

const StageOracle::Extent& StageOracle::At(int32_t begin, int32_t end) const {
  const size_t length = end - begin;
  std::vector<Extent>& row = rows_[end];
  while (row.size() <= length) {
    row.push_back(Grow(row.back(), end - static_cast<int32_t>(row.size()), end));
  }
  return row[length];
}

void StageOracle::CollectInputs() {
  const Graph& graph = *problem().graph;
  if (!graph.executable()) return;
  const std::vector<bool> kept = KeepsInputs(graph, problem().costs->precision());
  std::set<InputId> inputs;
  for (int32_t v = 0; v < graph.size(); ++v) {
    if (!kept[v]) inputs.insert(graph.Inputs(NodeId(v)).begin(), graph.Inputs(NodeId(v)).end());
  }
  passing_inputs_.assign(inputs.begin(), inputs.end());
}

// By position: values made before it and read after it, or their gradients, and inputs of the graph
// that are not saved. Planning-only operators have none of these.
std::vector<Bytes> StageOracle::PassingBytes(int64_t samples) const {
  std::vector<Bytes> change(size() + 1, 0);
  if (!problem().graph->executable()) return std::vector<Bytes>(size(), 0);
  for (const ValueUse& value : values_) {
    const Bytes bytes = CeilBytes(value.bytes_per_sample * static_cast<double>(samples));
    change[value.producer + 1] += bytes;
    change[value.consumers.back()] -= bytes;
  }
  std::vector<Bytes> passing(size(), 0);
  Bytes now = 0;
  for (InputId input : passing_inputs_) {
    now += problem().graph->input(input).meta.SizeBytes(samples);
  }
  for (int32_t p = 0; p < size(); ++p) passing[p] = now += change[p];
  return passing;
}

const ShareCosts& StageOracle::Share(int64_t samples) const {
  std::unique_ptr<ShareCosts>& slot = shares_[samples];
  if (slot != nullptr) return *slot;
  slot = std::make_unique<ShareCosts>();
  slot->time_.assign(1, 0);
  slot->forward_.assign(1, 0);
  slot->saved_.assign(1, 0);
  slot->workspace_.resize(1);
  const ShareTable table = costs_.ShareOn(*kind_, samples, CostView::kPlanned);
  for (OperatorId op : order_) {
    const OperatorTime& time = table.time[0][op.index()];
    slot->time_.push_back(slot->time_.back() + static_cast<double>(time.forward + time.backward));
    slot->forward_.push_back(slot->forward_.back() + static_cast<double>(time.forward));
    slot->saved_.push_back(slot->saved_.back() + table.saved[op.index()]);
    slot->workspace_[0].push_back(table.workspace[op.index()]);
  }
  const std::vector<Bytes> passing = PassingBytes(samples);
  for (int32_t p = 0; p < size(); ++p) slot->workspace_[0][p] += passing[p];
  for (int32_t width = 1; 2 * width <= size(); width *= 2) {
    const std::vector<Bytes>& half = slot->workspace_.back();
    std::vector<Bytes> whole(half.size() - width);
    for (size_t p = 0; p < whole.size(); ++p) whole[p] = std::max(half[p], half[p + width]);
    slot->workspace_.push_back(std::move(whole));
  }
  return *slot;
}

Bytes StageOracle::Memory(const Extent& extent, Bytes saved, Bytes workspace, const Flow& flow) {
  // In steady state, while a backward pass runs: the inputs of all shares in flight and of the
  // next forward pass, two gradients of them that wait to be sent (the stage before cannot fall
  // back further), and the gradients of this and the next backward pass.
  const double inputs =
      static_cast<double>(std::min(flow.micro_batches_in_flight + 1, flow.micro_batches) +
                          std::min<int64_t>(2, flow.micro_batches));
  const auto two = static_cast<double>(std::min<int64_t>(2, flow.micro_batches));
  double per_sample = extent.in_per_sample * inputs + extent.returned_per_sample * two;
  per_sample += extent.copied_per_sample;
  // A stage that recomputes saves the tensors of one share at a time, and holds what it sends.
  if (flow.recompute) {
    per_sample += extent.held_per_sample + extent.returned_per_sample * two;
  } else {
    per_sample += extent.held_per_sample * static_cast<double>(flow.micro_batches_in_flight);
  }
  const Bytes of_others =
      extent.state == 0 ? Bytes(0)
                        : extent.state - (extent.state + Bytes(flow.replicas - 1)) / flow.replicas;
  const Bytes passed =
      extent.passing == 0 ? Bytes(0) : PassingSaves(extent.passing, saved, flow.replicas);
  return extent.resident - of_others - passed +
         (flow.recompute ? 1 : flow.micro_batches_in_flight) * saved + workspace +
         CeilBytes(per_sample * static_cast<double>(flow.samples));
}

Bytes StageOracle::Memory(int32_t begin, int32_t end, const Flow& flow) const {
  const ShareCosts& share = Share(flow.samples);
  return Memory(At(begin, end), share.Saved(begin, end), share.Workspace(begin, end), flow);
}

}  // namespace stagewright
