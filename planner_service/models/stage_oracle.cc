#include "planner_service/models/stage_oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "common/base/check.h"
#include "common/cost/parameters.h"
#include "common/cost/retention.h"
#include "common/cost/value_bytes.h"

namespace stagewright {
std::vector<OperatorId> ModelOrder(const Problem& problem) {
  const std::vector<int32_t>& order = problem.operators->dag().order();
  return std::vector<OperatorId>(order.begin(), order.end());
}

const DeviceKind& SlowestKind(const Problem& problem, int64_t samples) {
  const DeviceKind* slowest = nullptr;
  Nanos most = -1;
  for (const DeviceKind& kind : problem.cluster->kinds()) {
    Nanos total = 0;
    for (int32_t v = 0; v < problem.graph->size(); ++v) {
      const OperatorTime time = problem.costs->Time(NodeId(v), kind, samples);
      total += time.forward + time.backward;
    }
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
    : problem_(&problem), order_(std::move(order)) {
  CHECK(static_cast<int32_t>(order_.size()) == problem.operators->size());
  const bool one_kind = problem.cluster->kinds().size() == 1;
  kind_ = one_kind ? &problem.cluster->kinds()[0] : &SlowestKind(problem, 1);
  budget_ = problem.cluster->devices()[0].memory;
  for (const Device& device : problem.cluster->devices()) {
    budget_ = std::min(budget_, device.memory);
  }
  nodes_.reserve(order_.size());
  for (OperatorId id : order_) {
    const std::vector<NodeId>& own = problem.operators->op(id).nodes;
    std::vector<NodeId> all = ReplicatedInto(*problem.graph, *problem.operators, own);
    all.insert(all.end(), own.begin(), own.end());
    nodes_.push_back(std::move(all));
  }
  CollectValues();
  CollectParameters();
  rows_.resize(order_.size() + 1);
  for (auto& row : rows_) row.push_back({});
}

void StageOracle::CollectValues() {
  const Graph& graph = *problem_->graph;
  std::vector<int32_t> position(size());
  for (int32_t p = 0; p < size(); ++p) position[order_[p].index()] = p;
  produced_.resize(size());
  consumed_.resize(size());
  const auto kept = KeptOutputs(graph);
  const auto per_sample = [&](ValueRef value) {
    return static_cast<double>(ValueBytesPerSample(graph, value, 1));
  };
  // By node: what the gradient of its result may be a part of, as that of a concatenation's
  // operand.
  std::vector<double> whole(graph.size(), 0);
  const auto& sorted = graph.dag().order();
  for (auto v = sorted.rbegin(); graph.executable() && v != sorted.rend(); ++v) {
    const NodeId id(*v);
    whole[*v] = std::max(whole[*v], per_sample({id, 0}));
    if (!PassesGradientOn(graph.node(id)) && StorageOf(graph, {id, 0}).node == id) continue;
    for (ValueRef value : graph.Values(id))
      whole[value.node.index()] = std::max(whole[value.node.index()], whole[*v]);
  }
  absl::flat_hash_map<std::pair<int32_t, int32_t>, int32_t> index;
  for (int32_t p = 0; p < size(); ++p) {
    for (NodeId id : nodes_[p]) {
      ForEachRead(graph, id, [&](ValueRef value) {
        const OperatorId owner = problem_->operators->owner(value.node);
        if (!owner.valid() || position[owner.index()] == p) return;
        const auto [it, added] = index.try_emplace({value.node.value(), value.output},
                                                   static_cast<int32_t>(values_.size()));
        if (added) {
          const int32_t producer = position[owner.index()];
          // A value that the backward pass needs, or whose storage it needs, is saved anyway.
          const ValueRef storage = StorageOf(graph, value);
          const bool saved =
              graph.node(storage.node).cost || kept[storage.node.index()][storage.output];
          values_.push_back({per_sample(value),
                             per_sample(value),
                             saved ? 0 : per_sample(storage),
                             producer,
                             {}});
          produced_[producer].push_back(it->second);
        }
        std::vector<int32_t>& consumers = values_[it->second].consumers;
        if (consumers.empty() || consumers.back() != p) {
          consumers.push_back(p);
          consumed_[p].push_back(it->second);
        }
      });
    }
  }
}

void StageOracle::CollectParameters() {
  const Graph& graph = *problem_->graph;
  parameters_.resize(size());
  std::vector<int32_t> next(graph.parameters().size(), size());
  for (int32_t p = size() - 1; p >= 0; --p) {
    for (ParameterId id : ParametersOf(graph, nodes_[p])) {
      const Parameter& parameter = graph.parameter(id);
      const Bytes gradient = parameter.trainable ? parameter.SizeBytes() : 0;
      parameters_[p].push_back(
          {ResidentBytes(parameter, problem_->optimizer), gradient, next[id.index()]});
      next[id.index()] = p;
    }
    for (NodeId id : nodes_[p]) {
      const Node& node = graph.node(id);
      if (!node.cost.has_value()) continue;
      const Bytes resident = ResidentBytes(*node.cost, problem_->optimizer);
      if (resident == 0 && node.cost->parameter_bytes == 0) continue;
      parameters_[p].push_back({resident, node.cost->parameter_bytes, size()});
    }
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
  if (problem_->graph->executable())
    extent.copied_per_sample = extent.in_per_sample + 2 * extent.out_per_sample;
  for (const ParameterUse& use : parameters_[p]) {
    if (use.next < end) continue;
    extent.resident += use.resident;
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
      resident.back() += use.resident;
      gradients.back() += use.gradient;
    }
  }
}

std::vector<StageOracle::Crossing> StageOracle::Crossings(
    const std::vector<int32_t>& begins) const {
  std::vector<int32_t> range(size());
  for (size_t r = 0; r < begins.size(); ++r) {
    const int32_t end = r + 1 < begins.size() ? begins[r + 1] : size();
    std::fill(range.begin() + begins[r], range.begin() + end, static_cast<int32_t>(r));
  }
  std::vector<Crossing> crossings;
  for (const ValueUse& value : values_) {
    int32_t last = range[value.producer];
    for (int32_t consumer : value.consumers) {
      if (range[consumer] == last) continue;
      last = range[consumer];
      crossings.push_back({range[value.producer], last, value.bytes_per_sample});
    }
  }
  std::sort(crossings.begin(), crossings.end(), [](const Crossing& a, const Crossing& b) {
    return std::tie(a.from, a.to) < std::tie(b.from, b.to);
  });
  size_t kept = 0;
  for (const Crossing& crossing : crossings) {
    if (kept > 0 && crossings[kept - 1].from == crossing.from &&
        crossings[kept - 1].to == crossing.to) {
      crossings[kept - 1].bytes_per_sample += crossing.bytes_per_sample;
    } else {
      crossings[kept++] = crossing;
    }
  }
  crossings.resize(kept);
  return crossings;
}

const StageOracle::Extent& StageOracle::At(int32_t begin, int32_t end) const {
  const size_t length = end - begin;
  std::vector<Extent>& row = rows_[end];
  while (row.size() <= length) {
    row.push_back(Grow(row.back(), end - static_cast<int32_t>(row.size()), end));
  }
  return row[length];
}

// By position: values made before it and read after it, or their gradients, and inputs of the graph
// that are not saved. Planning-only operators have none of these.
std::vector<Bytes> StageOracle::PassingBytes(int64_t samples) const {
  std::vector<Bytes> change(size() + 1, 0);
  if (!problem_->graph->executable()) return std::vector<Bytes>(size(), 0);
  for (const ValueUse& value : values_) {
    const auto bytes =
        static_cast<Bytes>(std::ceil(value.gradient_per_sample * static_cast<double>(samples)));
    change[value.producer + 1] += bytes;
    change[value.consumers.back()] -= bytes;
  }
  const Graph& graph = *problem_->graph;
  const std::vector<bool> kept = KeepsInputs(graph);
  std::set<InputId> inputs;
  for (int32_t v = 0; v < graph.size(); ++v) {
    if (!kept[v]) inputs.insert(graph.Inputs(NodeId(v)).begin(), graph.Inputs(NodeId(v)).end());
  }
  std::vector<Bytes> passing(size(), 0);
  Bytes now = 0;
  for (InputId input : inputs) now += graph.input(input).meta.SizeBytes(samples);
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
  for (const std::vector<NodeId>& nodes : nodes_) {
    double time = 0;
    double forward = 0;
    Bytes saved = 0;
    Bytes workspace = 0;
    for (NodeId id : nodes) {
      const OperatorTime cost = problem_->costs->Time(id, *kind_, samples);
      time += static_cast<double>(cost.forward + cost.backward);
      forward += static_cast<double>(cost.forward);
      saved += problem_->costs->SavedBytes(id, samples);
      workspace = std::max(workspace, problem_->costs->WorkspaceBytes(id, samples));
    }
    slot->time_.push_back(slot->time_.back() + time);
    slot->forward_.push_back(slot->forward_.back() + forward);
    slot->saved_.push_back(slot->saved_.back() + saved);
    slot->workspace_[0].push_back(workspace);
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
  const double inputs = static_cast<double>(std::min(flow.in_flight + 1, flow.micro_batches) +
                                            std::min<int64_t>(2, flow.micro_batches));
  const auto two = static_cast<double>(std::min<int64_t>(2, flow.micro_batches));
  double per_sample = extent.in_per_sample * inputs + extent.returned_per_sample * two;
  per_sample += extent.copied_per_sample;
  // A stage that recomputes saves the tensors of one share at a time, and holds what it sends.
  if (flow.recompute) {
    per_sample += extent.held_per_sample + extent.returned_per_sample * two;
  } else {
    per_sample += extent.held_per_sample * static_cast<double>(flow.in_flight);
  }
  return extent.resident + (flow.recompute ? 1 : flow.in_flight) * saved + workspace +
         static_cast<Bytes>(std::ceil(per_sample * static_cast<double>(flow.samples)));
}

Bytes StageOracle::Memory(int32_t begin, int32_t end, const Flow& flow) const {
  const ShareCosts& share = Share(flow.samples);
  return Memory(At(begin, end), share.Saved(begin, end), share.Workspace(begin, end), flow);
}

}  // namespace stagewright
