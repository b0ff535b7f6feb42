#include "planner_service/models/list_schedule/least_times.h"

#include <algorithm>
#include <limits>

namespace stagewright {
namespace {

constexpr Nanos kNever = std::numeric_limits<Nanos>::max();

// What a backward pass does before it needs a gradient.
Nanos Ahead(const TaskGraph::Unit& unit) { return unit.recompute ? unit.forward : Nanos(0); }

// Stages, and so units, are in topological order.
void SetChains(const TaskGraph& graph, bool split, LeastTimes& least) {
  const auto units = static_cast<int32_t>(graph.units.size());
  least.forward_left.assign(units, 0);
  least.backward_left.assign(units, 0);
  for (int32_t u = 0; u < units; ++u) {
    const TaskGraph::Unit& unit = graph.units[u];
    if (!unit.has_backward) continue;
    const Nanos own = unit.BackwardTime(split);
    Nanos behind = unit.backward - own + unit.tail;
    for (int32_t i = unit.in_begin; i < graph.in_end(u); ++i) {
      const TaskGraph::Link& link = graph.links[graph.links_in[i]];
      if (!link.gradient) continue;
      behind = std::max(behind, link.back_latency + link.back_bytes +
                                    least.backward_left[link.from] - Ahead(graph.units[link.from]));
    }
    least.backward_left[u] = own + behind;
  }
  for (int32_t u = units - 1; u >= 0; --u) {
    Nanos behind = least.backward_left[u];
    for (int32_t l = graph.units[u].out_begin; l < graph.out_end(u); ++l) {
      const TaskGraph::Link& link = graph.links[l];
      behind =
          std::max(behind, link.there_latency + link.there_bytes + least.forward_left[link.to]);
    }
    least.forward_left[u] = graph.units[u].forward + behind;
  }
}

// All updates of a device follow its last pass. If that was of stage s, the sum of s does, the sums
// of the stages below, one after the other, and after each sum its update; and what waits for the
// pass, unless it was a weight half.
void SetDevices(const TaskGraph& graph, bool split, LeastTimes& least) {
  std::vector<const TaskGraph::Sum*> sums;  // By stage.
  sums.assign(graph.units.empty() ? 0 : graph.units.back().stage + 1, nullptr);
  for (const TaskGraph::Sum& sum : graph.sums) sums[sum.stage] = &sum;
  least.device_left.assign(graph.devices, 0);
  for (int32_t d = 0; d < graph.devices; ++d) {
    if (graph.device_units[d].empty()) continue;
    // Updates come in descending order of stages, units in ascending order.
    Nanos updates = 0;  // What the stages below need for theirs.
    Nanos summed = 0;   // From the moment when sums of the stages below can begin.
    Nanos last = kNever;
    auto update = graph.device_updates[d].rbegin();
    for (int32_t u : graph.device_units[d]) {
      const TaskGraph::Unit& unit = graph.units[u];
      if (!unit.has_backward) {
        last = std::min(last, least.forward_left[u] - unit.forward);
        continue;
      }
      const TaskGraph::Sum* sum = sums[unit.stage];
      const Nanos exposed = sum == nullptr ? Nanos(0) : sum->exposed;
      const bool whole = unit.BackwardTime(split) == unit.backward;
      last = std::min(last, std::max({unit.tail + updates, exposed + summed,
                                      whole ? least.backward_left[u] - unit.backward : Nanos(0)}));
      if (sum != nullptr)
        summed = sum->time + std::max(update->time - update->early + updates, summed);
      updates += (update++)->time;
    }
    least.device_left[d] = std::max(last, updates);
  }
}

class Step {
 public:
  Step(const TaskGraph& graph, bool split, LeastTimes& least)
      : graph_(graph), split_(split), least_(least) {
    const auto units = static_cast<int32_t>(graph.units.size());
    head_.assign(units, 0);
    turn_.assign(units, 0);
  }

  void Set() {
    SetStarts();
    SetLinks();
    std::vector<Nanos> first(graph_.devices, kNever), work(graph_.devices, 0);
    const int64_t others = graph_.micro_batches - 1;
    for (size_t u = 0; u < graph_.units.size(); ++u) {
      const TaskGraph::Unit& unit = graph_.units[u];
      first[unit.device] = std::min(first[unit.device], head_[u]);
      work[unit.device] += unit.forward + (unit.has_backward ? unit.backward : 0);
      Extend(head_[u] + others * unit.forward + least_.forward_left[u]);
      if (!unit.has_backward) continue;
      Extend(turn_[u] + others * unit.BackwardTime(split_) + least_.backward_left[u]);
    }
    for (int32_t d = 0; d < graph_.devices; ++d) {
      if (first[d] == kNever) continue;
      Extend(first[d] + graph_.micro_batches * work[d] + least_.device_left[d]);
    }
    for (size_t l = 0; l < first_sent_.size(); ++l) {
      if (first_sent_[l] == kNever) continue;
      Extend(first_sent_[l] + least_.link_work[l] + least_.link_left[l]);
    }
  }

 private:
  void Extend(Nanos time) { least_.step = std::max(least_.step, time); }

  // When the first micro-batch can start forwards and backwards.
  void SetStarts() {
    least_.step = 0;
    const auto units = static_cast<int32_t>(graph_.units.size());
    for (int32_t u = 0; u < units; ++u) {
      const Nanos end = head_[u] + graph_.units[u].forward;
      for (int32_t l = graph_.units[u].out_begin; l < graph_.out_end(u); ++l) {
        const TaskGraph::Link& link = graph_.links[l];
        head_[link.to] = std::max(head_[link.to], end + link.there_latency + link.there_bytes);
      }
    }
    for (int32_t u = units - 1; u >= 0; --u) {
      const TaskGraph::Unit& unit = graph_.units[u];
      turn_[u] = std::max(turn_[u], head_[u] + unit.forward);
      if (!unit.has_backward) continue;
      const Nanos end = turn_[u] + unit.BackwardTime(split_);
      for (int32_t i = unit.in_begin; i < graph_.in_end(u); ++i) {
        const TaskGraph::Link& link = graph_.links[graph_.links_in[i]];
        if (!link.gradient) continue;
        turn_[link.from] = std::max(turn_[link.from], end + link.back_latency + link.back_bytes -
                                                          Ahead(graph_.units[link.from]));
      }
    }
  }

  void SetLinks() {
    const size_t links = graph_.cluster_links.size();
    least_.link_work.assign(links, 0);
    least_.link_left.assign(links, kNever);
    first_sent_.assign(links, kNever);
    for (const TaskGraph::Link& link : graph_.links) {
      if (link.local) continue;
      const TaskGraph::Unit& from = graph_.units[link.from];
      AddMessages(*link.there_route, link.there_size, link.there_bytes,
                  head_[link.from] + from.forward,
                  link.there_latency + least_.forward_left[link.to]);
      if (!link.gradient) continue;
      AddMessages(*link.back_route, link.back_size, link.back_bytes,
                  turn_[link.to] + graph_.units[link.to].BackwardTime(split_),
                  link.back_latency + least_.backward_left[link.from] - Ahead(from));
    }
  }

  void AddMessages(const Route& route, Bytes size, Nanos slowest, Nanos sent, Nanos left) {
    for (int32_t l : route.links) {
      least_.link_work[l] += graph_.micro_batches * graph_.TimeOn(l, route, size, slowest);
      least_.link_left[l] = std::min(least_.link_left[l], left);
      first_sent_[l] = std::min(first_sent_[l], sent);
    }
  }

  const TaskGraph& graph_;
  const bool split_;
  LeastTimes& least_;
  std::vector<Nanos> head_, turn_, first_sent_;
};

}  // namespace

void SetLeastTimes(const TaskGraph& graph, bool split, LeastTimes& least) {
  SetChains(graph, split, least);
  SetDevices(graph, split, least);
  Step(graph, split, least).Set();
}

}  // namespace stagewright
