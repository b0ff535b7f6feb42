#include "planner_service/planners/pfeife/dependency_graph.h"

#include <algorithm>
#include <map>
#include <utility>

namespace stagewright::pfeife {

double PathLength(const PathCounts& path, const SliceCosts& costs) {
  double length = 0;
  for (size_t s = 0; s < path.forward.size(); ++s) {
    length += path.forward[s] * costs.forward[s] + path.backward[s] * costs.backward[s];
  }
  auto message = costs.messages.begin();
  for (const PathCounts::Hop& hop : path.hops) {
    while (message != costs.messages.end() &&
           std::make_pair(message->from, message->to) < std::make_pair(hop.from, hop.to)) {
      ++message;
    }
    if (message == costs.messages.end() || message->from != hop.from || message->to != hop.to ||
        (hop.back > 0 && message->back < 0)) {
      return -1;
    }
    length += hop.there * message->there + (hop.back > 0 ? hop.back * message->back : 0);
  }
  return length;
}

PassLanes LanesOf(const LoopedShape& shape, const std::vector<SlicePass>& passes, bool recompute,
                  std::optional<ReceivePosting> posting) {
  std::vector<PassLanes::Unit> units;
  for (int32_t s = 0; s < shape.slices(); ++s) {
    units.push_back({shape.device_of(s), shape.micro_batches});
  }
  std::vector<UnitPass> lanes;
  lanes.reserve(passes.size());
  for (const auto& [slice, micro_batch, backward] : passes) {
    if (backward && recompute) lanes.push_back({slice, micro_batch, PassKind::kRecompute});
    lanes.push_back({slice, micro_batch, backward ? PassKind::kBackward : PassKind::kForward});
  }
  return PassLanes(std::move(units), lanes, posting);
}

void ToTimelineCosts(const SliceCosts& slices, bool recompute, TimelineCosts& costs) {
  costs.times.clear();
  for (size_t s = 0; s < slices.forward.size(); ++s) {
    const double forward = slices.forward[s];
    costs.times.push_back({forward, slices.backward[s] - (recompute ? forward : 0), forward, 0});
  }
  costs.messages.clear();
  for (const SliceCosts::Message& message : slices.messages) {
    costs.messages.push_back({message.from,
                              message.to,
                              message.back >= 0,
                              {0, message.there, {}},
                              {0, message.back, {}}});
  }
}

DependencyGraph::DependencyGraph(const LoopedShape& shape, const std::vector<SlicePass>& passes)
    : shape_(shape),
      timeline_(LanesOf(shape, passes, /*recompute=*/false, std::nullopt)),
      previous_(passes.size(), -1) {
  for (size_t p = 0; p < passes.size(); ++p) {
    const int32_t next = timeline_.lanes().passes()[p].next;
    if (next >= 0) previous_[next] = static_cast<int32_t>(p);
  }
}

std::optional<DependencyGraph> DependencyGraph::Create(const LoopedShape& shape) {
  const auto passes = TopologicalPasses(shape);
  if (!passes) return std::nullopt;
  return DependencyGraph(shape, *passes);
}

double DependencyGraph::LongestPath(const SliceCosts& costs) {
  ToTimelineCosts(costs, /*recompute=*/false, costs_);
  return timeline_.Run(costs_, {.links = LinkModel::kUnlimited, .ordered = true});
}

double DependencyGraph::Start(const SlicePass& pass) const {
  const PassLanes& lanes = timeline_.lanes();
  return timeline_.start(lanes.reader(lanes.SlotOf(pass.slice, pass.micro_batch, pass.backward)));
}

std::vector<SlicePass> DependencyGraph::CriticalPasses() const {
  const PassLanes& lanes = timeline_.lanes();
  int32_t at = lanes.last(0);
  for (int32_t s = 1; s < shape_.slices(); ++s) {
    if (timeline_.end(lanes.last(s)) > timeline_.end(at)) at = lanes.last(s);
  }
  std::vector<SlicePass> critical;
  while (at >= 0) {
    const PassLanes::Placed& pass = lanes.passes()[at];
    const bool backward = pass.kind == PassKind::kBackward;
    critical.push_back({pass.unit, pass.micro_batch, backward});
    at = previous_[at];
    double latest = at >= 0 ? timeline_.end(at) : 0;
    for (int32_t i : backward ? timeline_.Outgoing(pass.unit) : timeline_.Incoming(pass.unit)) {
      const TimelineCosts::Message& message = costs_.messages[i];
      if (backward && !message.gradient) continue;
      const int32_t from = lanes.reader(
          lanes.SlotOf(backward ? message.to : message.from, pass.micro_batch, backward));
      const double arrival = timeline_.end(from) + (backward ? message.back : message.there).time;
      if (arrival <= latest) continue;
      latest = arrival;
      at = from;
    }
  }
  std::reverse(critical.begin(), critical.end());
  return critical;
}

PathCounts DependencyGraph::CriticalPath() const {
  PathCounts path;
  path.forward.assign(shape_.slices(), 0);
  path.backward.assign(shape_.slices(), 0);
  const std::vector<SlicePass> passes = CriticalPasses();
  std::map<std::pair<int32_t, int32_t>, PathCounts::Hop> hops;
  for (size_t i = 0; i < passes.size(); ++i) {
    const SlicePass& pass = passes[i];
    ++(pass.backward ? path.backward : path.forward)[pass.slice];
    // Only messages lead from one device to another.
    if (i == 0 || shape_.device_of(passes[i - 1].slice) == shape_.device_of(pass.slice)) continue;
    const int32_t from = std::min(passes[i - 1].slice, pass.slice);
    const int32_t to = std::max(passes[i - 1].slice, pass.slice);
    PathCounts::Hop& hop = hops[{from, to}];
    hop.from = from;
    hop.to = to;
    ++(pass.backward ? hop.back : hop.there);
  }
  for (const auto& [key, hop] : hops) path.hops.push_back(hop);
  return path;
}

}  // namespace stagewright::pfeife
