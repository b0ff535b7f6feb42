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

std::optional<DependencyGraph> DependencyGraph::Create(const LoopedShape& shape) {
  const auto order = TopologicalPasses(shape);
  if (!order) return std::nullopt;
  DependencyGraph graph;
  graph.shape_ = shape;
  graph.end_.assign(order->size(), 0);
  graph.vertex_.resize(order->size());
  std::vector<int32_t> last(shape.devices, -1);
  for (const SlicePass& pass : *order) {
    const int32_t self = graph.IndexOf(pass.slice, pass.micro_batch, pass.backward);
    int32_t& previous = last[shape.device_of(pass.slice)];
    graph.vertex_[self] = static_cast<int32_t>(graph.passes_.size());
    graph.passes_.push_back({pass.slice, pass.micro_batch, pass.backward, self, previous});
    previous = self;
  }
  return graph;
}

// Messages by receiver; those by sender are contiguous as they are.
void DependencyGraph::Link(const SliceCosts& costs) {
  const int32_t slices = shape_.slices();
  incoming_at_.assign(slices + 1, 0);
  outgoing_at_.assign(slices + 1, 0);
  for (const SliceCosts::Message& message : costs.messages) {
    ++incoming_at_[message.to + 1];
    ++outgoing_at_[message.from + 1];
  }
  for (int32_t s = 0; s < slices; ++s) {
    incoming_at_[s + 1] += incoming_at_[s];
    outgoing_at_[s + 1] += outgoing_at_[s];
  }
  incoming_.resize(costs.messages.size());
  for (size_t i = 0; i < costs.messages.size(); ++i) {
    incoming_[incoming_at_[costs.messages[i].to]++] = static_cast<int32_t>(i);
  }
  for (int32_t s = slices; s > 0; --s) incoming_at_[s] = incoming_at_[s - 1];
  incoming_at_[0] = 0;
}

double DependencyGraph::LongestPath(const SliceCosts& costs) {
  Link(costs);
  const int32_t batches = shape_.micro_batches;
  const int32_t backward_base = shape_.slices() * batches;
  double longest = 0;
  for (const Vertex& v : passes_) {
    double start = v.previous >= 0 ? end_[v.previous] : 0;
    if (v.backward) {
      for (int32_t i = outgoing_at_[v.slice]; i < outgoing_at_[v.slice + 1]; ++i) {
        const SliceCosts::Message& message = costs.messages[i];
        if (message.back < 0) continue;
        start = std::max(start,
                         end_[backward_base + message.to * batches + v.micro_batch] + message.back);
      }
    } else {
      for (int32_t i = incoming_at_[v.slice]; i < incoming_at_[v.slice + 1]; ++i) {
        const SliceCosts::Message& message = costs.messages[incoming_[i]];
        start = std::max(start, end_[message.from * batches + v.micro_batch] + message.there);
      }
    }
    const double end = start + (v.backward ? costs.backward[v.slice] : costs.forward[v.slice]);
    end_[v.self] = end;
    longest = std::max(longest, end);
  }
  return longest;
}

double DependencyGraph::Start(const SlicePass& pass, const SliceCosts& costs) const {
  return end_[IndexOf(pass.slice, pass.micro_batch, pass.backward)] -
         (pass.backward ? costs.backward[pass.slice] : costs.forward[pass.slice]);
}

std::vector<SlicePass> DependencyGraph::CriticalPasses(const SliceCosts& costs) const {
  std::vector<SlicePass> passes;
  auto at = static_cast<int32_t>(std::max_element(end_.begin(), end_.end()) - end_.begin());
  while (at >= 0) {
    const Vertex& v = passes_[vertex_[at]];
    passes.push_back({v.slice, v.micro_batch, v.backward});
    at = v.previous;
    double latest = at >= 0 ? end_[at] : 0;
    const auto consider = [&](int32_t from, double time) {
      if (end_[from] + time <= latest) return;
      latest = end_[from] + time;
      at = from;
    };
    if (v.backward) {
      for (int32_t i = outgoing_at_[v.slice]; i < outgoing_at_[v.slice + 1]; ++i) {
        const SliceCosts::Message& message = costs.messages[i];
        if (message.back >= 0) consider(IndexOf(message.to, v.micro_batch, true), message.back);
      }
    } else {
      for (int32_t i = incoming_at_[v.slice]; i < incoming_at_[v.slice + 1]; ++i) {
        const SliceCosts::Message& message = costs.messages[incoming_[i]];
        consider(IndexOf(message.from, v.micro_batch, false), message.there);
      }
    }
  }
  std::reverse(passes.begin(), passes.end());
  return passes;
}

PathCounts DependencyGraph::CriticalPath(const SliceCosts& costs) const {
  PathCounts path;
  path.forward.assign(shape_.slices(), 0);
  path.backward.assign(shape_.slices(), 0);
  const std::vector<SlicePass> passes = CriticalPasses(costs);
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
