// When each pass of a list schedule is due: by a rule, or from the same problem read backwards.
#include <algorithm>

#include "planner_service/models/list_schedule.h"

namespace stagewright {

void ListScheduler::DueDates(const ListRule& rule) {
  Nanos busiest = 0;
  for (const auto& on_device : graph_->device_units) {
    Nanos work = 0;
    for (int32_t u : on_device) {
      const TaskGraph::Unit& unit = graph_->units[u];
      work += unit.forward + (unit.has_backward ? unit.backward : 0);
    }
    busiest = std::max(busiest, work);
  }
  const auto period = static_cast<Nanos>(rule.pace * static_cast<double>(busiest));
  const size_t passes = graph_->units.size() * micro_batches_;
  due_forward_.resize(passes);
  due_backward_.resize(passes);
  due_weight_.resize(passes);
  tail_forward_.assign(graph_->units.size(), 0);
  tail_backward_.assign(graph_->units.size(), 0);
  if (rule.due == ListRule::Due::kTail) {
    TailDueDates(period);
  } else {
    TurnDueDates(period, rule.backward);
  }
}

// Bottom levels. Stages, and so units, are in topological order.
void ListScheduler::TailDueDates(Nanos period) {
  const auto units = static_cast<int32_t>(graph_->units.size());
  for (int32_t u = 0; u < units; ++u) {
    const TaskGraph::Unit& unit = graph_->units[u];
    if (!unit.has_backward) continue;
    Nanos behind = unit.tail + (Splits(u) ? unit.backward - unit.input : 0);
    for (int32_t i = unit.in_begin; i < graph_->in_end(u); ++i) {
      const TaskGraph::Link& link = graph_->links[graph_->links_in[i]];
      if (!link.gradient) continue;
      behind = std::max(behind, link.back_latency + link.back_bytes + tail_backward_[link.from]);
    }
    tail_backward_[u] = behind + TimeOf(u, kBackward);
  }
  for (int32_t u = units - 1; u >= 0; --u) {
    Nanos behind = tail_backward_[u];
    for (int32_t l = graph_->units[u].out_begin; l < graph_->out_end(u); ++l) {
      const TaskGraph::Link& link = graph_->links[l];
      behind = std::max(behind, link.there_latency + link.there_bytes + tail_forward_[link.to]);
    }
    tail_forward_[u] = behind + graph_->units[u].forward;
  }
  for (int32_t u = 0; u < units; ++u) {
    const TaskGraph::Unit& unit = graph_->units[u];
    for (int32_t m = 0; m < micro_batches_; ++m) {
      const size_t at = static_cast<size_t>(u) * micro_batches_ + m;
      const Nanos later = period * (micro_batches_ - 1 - m);
      due_forward_[at] = -tail_forward_[u] - later;
      due_backward_[at] = -tail_backward_[u] - later;
      due_weight_[at] = -unit.tail - (unit.backward - unit.input) * (micro_batches_ - m);
    }
  }
}

void ListScheduler::TurnDueDates(Nanos period, double backward) {
  const auto units = static_cast<int32_t>(graph_->units.size());
  Nanos longest = 0;
  for (int32_t u = units - 1; u >= 0; --u) {
    Nanos ahead = 0;
    Nanos behind = 0;
    for (int32_t l = graph_->units[u].out_begin; l < graph_->out_end(u); ++l) {
      const TaskGraph::Link& link = graph_->links[l];
      ahead = std::max(ahead, link.there_latency + link.there_bytes + tail_forward_[link.to]);
      behind = std::max(behind, link.back_latency + link.back_bytes + tail_backward_[link.to]);
    }
    tail_forward_[u] = ahead + graph_->units[u].forward;
    tail_backward_[u] = behind + TimeOf(u, kBackward);
    longest = std::max({longest, tail_forward_[u], tail_backward_[u]});
  }
  // Weight halves come last, those with the longest way to the end first.
  const Nanos last = longest + period * micro_batches_;
  for (int32_t u = 0; u < units; ++u) {
    const auto turned = static_cast<Nanos>(backward * static_cast<double>(tail_backward_[u]));
    for (int32_t m = 0; m < micro_batches_; ++m) {
      const size_t at = static_cast<size_t>(u) * micro_batches_ + m;
      due_forward_[at] = tail_forward_[u] + period * m;
      due_backward_[at] = turned + period * m;
      due_weight_[at] = 2 * last - graph_->units[u].tail;
    }
  }
}

// A pass of the mirrored problem that ends at t' leaves its mirror image until end - t' to start.
void ListScheduler::DueDatesFrom(const std::vector<Done>& reversed, Nanos end, bool split) {
  for (const Done& done : reversed) {
    if (done.phase == kWeight) continue;
    const size_t at =
        static_cast<size_t>(done.unit) * micro_batches_ + (micro_batches_ - 1 - done.micro_batch);
    if (done.phase == kForward) {
      due_backward_[at] = end - done.end;
      if (split) {
        const TaskGraph::Unit& unit = graph_->units[done.unit];
        due_weight_[at] = end - done.start - (unit.backward - unit.input);
      }
    } else {
      due_forward_[at] = end - done.end;
    }
  }
}

}  // namespace stagewright
