#include "planner_service/models/list_schedule/due_dates.h"

#include <algorithm>

namespace stagewright {
namespace {

// Bottom levels.
void SetTails(const TaskGraph& graph, const LeastTimes& least, Nanos period, DueDates& due) {
  const auto units = static_cast<int32_t>(graph.units.size());
  for (int32_t u = 0; u < units; ++u) {
    const TaskGraph::Unit& unit = graph.units[u];
    for (int32_t m = 0; m < graph.micro_batches; ++m) {
      const Nanos later = period * (graph.micro_batches - 1 - m);
      due.forward(u, m) = -least.forward_left[u] - later;
      due.backward(u, m) = -least.backward_left[u] - later;
      due.weight(u, m) = -unit.tail - (unit.backward - unit.input) * (graph.micro_batches - m);
    }
  }
}

void SetTurns(const TaskGraph& graph, const ListRule& rule, Nanos period, DueDates& due) {
  const auto units = static_cast<int32_t>(graph.units.size());
  std::vector<Nanos> forward(units, 0), backward(units, 0);
  Nanos longest = 0;
  for (int32_t u = units - 1; u >= 0; --u) {
    Nanos ahead = 0;
    Nanos behind = 0;
    for (int32_t l = graph.units[u].out_begin; l < graph.out_end(u); ++l) {
      const TaskGraph::Link& link = graph.links[l];
      ahead = std::max(ahead, link.there_latency + link.there_bytes + forward[link.to]);
      behind = std::max(behind, link.back_latency + link.back_bytes + backward[link.to]);
    }
    forward[u] = ahead + graph.units[u].forward;
    backward[u] = behind + graph.units[u].BackwardTime(rule.split);
    longest = std::max({longest, forward[u], backward[u]});
  }
  // Weight halves come last, those with the longest way to the end first.
  const Nanos last = longest + period * graph.micro_batches;
  for (int32_t u = 0; u < units; ++u) {
    const auto turned = static_cast<Nanos>(rule.backward * static_cast<double>(backward[u]));
    for (int32_t m = 0; m < graph.micro_batches; ++m) {
      due.forward(u, m) = forward[u] + period * m;
      due.backward(u, m) = turned + period * m;
      due.weight(u, m) = 2 * last - graph.units[u].tail;
    }
  }
}

}  // namespace

void SetDueDates(const TaskGraph& graph, const LeastTimes& least, const ListRule& rule,
                 DueDates& due) {
  Nanos busiest = 0;
  for (const auto& on_device : graph.device_units) {
    Nanos work = 0;
    for (int32_t u : on_device) {
      const TaskGraph::Unit& unit = graph.units[u];
      work += unit.forward + (unit.has_backward ? unit.backward : 0);
    }
    busiest = std::max(busiest, work);
  }
  const auto period = static_cast<Nanos>(rule.pace * static_cast<double>(busiest));
  for (auto* dates : {&due.forward, &due.backward, &due.weight}) {
    dates->Reset(graph.units.size(), graph.micro_batches, 0);
  }
  if (rule.due == ListRule::Due::kTail) {
    SetTails(graph, least, period, due);
  } else {
    SetTurns(graph, rule, period, due);
  }
}

// A pass of the mirrored problem that ends at t' leaves its mirror image until end - t' to start.
void MirrorDueDates(const TaskGraph& graph, std::span<const TimedPass> mirrored, Nanos end,
                    bool split, DueDates& due) {
  for (const TimedPass& pass : mirrored) {
    if (pass.kind == PassKind::kWeight) continue;
    const int32_t m = graph.micro_batches - 1 - pass.micro_batch;
    if (pass.kind == PassKind::kBackward) {
      due.forward(pass.unit, m) = end - pass.end;
      continue;
    }
    due.backward(pass.unit, m) = end - pass.end;
    if (!split) continue;
    const TaskGraph::Unit& unit = graph.units[pass.unit];
    due.weight(pass.unit, m) = end - pass.start - (unit.backward - unit.input);
  }
}

}  // namespace stagewright
