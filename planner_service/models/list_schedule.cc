#include "planner_service/models/list_schedule.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace stagewright {
namespace {

constexpr Nanos kNever = std::numeric_limits<Nanos>::max();

}  // namespace

Nanos ListScheduler::TimeOf(int32_t unit, Phase phase) const {
  const TaskGraph::Unit& u = graph_->units[unit];
  if (phase == kWeight) return u.backward - u.input;
  if ((phase == kForward) != direction_.reversed) return u.forward;
  return Splits(unit) ? u.input : u.backward;
}

bool ListScheduler::Splits(int32_t unit) const {
  const TaskGraph::Unit& u = graph_->units[unit];
  return direction_.split && u.sends_gradients && u.input < u.backward;
}

void ListScheduler::Prepare(const TaskGraph& graph, Direction direction) {
  graph_ = &graph;
  direction_ = direction;
  micro_batches_ = graph.micro_batches;
  const size_t units = graph.units.size();
  const size_t passes = units * micro_batches_;
  ready_forward_.assign(passes, 0);
  ready_backward_.assign(passes, 0);
  missing_forward_.assign(passes, 0);
  missing_backward_.assign(passes, 0);
  started_backward_.assign(passes, 0);
  for (auto* next : {&next_forward_, &next_backward_, &next_weight_, &released_}) {
    next->assign(units, 0);
  }
  for (size_t u = 0; u < units; ++u) {
    int32_t forward = 0;
    int32_t backward = 0;
    for (int32_t i = graph.units[u].in_begin; i < graph.in_end(static_cast<int32_t>(u)); ++i) {
      if (!direction.reversed || graph.links[graph.links_in[i]].gradient) ++forward;
    }
    for (int32_t l = graph.units[u].out_begin; l < graph.out_end(static_cast<int32_t>(u)); ++l) {
      if (direction.reversed || graph.links[l].gradient) ++backward;
    }
    const auto row = static_cast<std::ptrdiff_t>(u * micro_batches_);
    std::fill_n(missing_forward_.begin() + row, micro_batches_, forward);
    std::fill_n(missing_backward_.begin() + row, micro_batches_, backward);
    if (direction.reversed) {
      std::fill_n(ready_forward_.begin() + row, micro_batches_, graph.units[u].tail);
    }
  }
  free_.assign(graph.devices, 0);
  work_.assign(graph.devices, 0);
  for (const TaskGraph::Unit& unit : graph.units) {
    work_[unit.device] += micro_batches_ * (unit.forward + (unit.has_backward ? unit.backward : 0));
  }
  past_.resize(graph.devices);
  for (auto& past : past_) past.clear();
  used_.assign(graph.devices, 0);
  link_free_.assign(graph.cluster_links, 0);
  events_.clear();
  done_.clear();
}

bool ListScheduler::MayStart(int32_t unit) const {
  if (direction_.reversed) return true;
  const TaskGraph::Unit& u = graph_->units[unit];
  if (u.kept == 0) return true;
  const std::vector<int32_t>& units = graph_->device_units[u.device];
  int32_t oldest = micro_batches_;
  for (int32_t v : units) {
    if (graph_->units[v].has_backward) oldest = std::min(oldest, released_[v]);
  }
  if (next_forward_[unit] == oldest) return true;
  Bytes needed = used_[u.device] + u.kept;
  for (int32_t v : units) {
    if (next_forward_[v] <= oldest) needed += graph_->units[v].kept;
  }
  return needed <= graph_->memory[u.device];
}

// When the receives of a pass that would come next are posted.
Nanos ListScheduler::Posted(int32_t unit, Phase phase, int32_t micro_batch) const {
  if (direction_.reversed) return 0;
  const TaskGraph::Unit& u = graph_->units[unit];
  const std::vector<Past>& past = past_[u.device];
  // The recomputation that would come right before it is a pass, too.
  const int32_t again = phase == kBackward && u.recompute ? 1 : 0;
  const int32_t passes = static_cast<int32_t>(past.size()) + again;
  const auto before = [&](int32_t back) {
    return back <= again ? LanePass() : past[past.size() - (back - again)].pass;
  };
  const LanePass::Kind kind =
      phase == kForward ? LanePass::Kind::kForward : LanePass::Kind::kGradients;
  const int32_t back = posting_.PassesBack({kind, WorkOf(unit, micro_batch)}, passes, before);
  if (back > passes) return 0;
  if (back <= again) return (past.empty() ? 0 : past.back().end) + u.forward;
  return past[past.size() - (back - again)].end;
}

void ListScheduler::Decide(int32_t device, Nanos now) {
  struct Choice {
    int32_t unit = -1;
    Phase phase = kForward;
    int32_t micro_batch = 0;
    Nanos due = kNever;
    Nanos ready = kNever;
  };
  Choice best;    // Of those that are ready, the most urgent;
  Choice coming;  // of those on their way, too.
  Nanos wake = kNever;
  const auto consider = [&](int32_t u, Phase phase, int32_t m, Nanos ready, Nanos due) {
    if (ready > now) wake = std::min(wake, ready);
    Choice& choice = ready > now ? coming : best;
    if (due > choice.due || (due == choice.due && m >= choice.micro_batch)) return;
    choice = {u, phase, m, due, ready};
  };
  for (int32_t u : graph_->device_units[device]) {
    const TaskGraph::Unit& unit = graph_->units[u];
    const size_t row = static_cast<size_t>(u) * micro_batches_;
    int32_t m = next_backward_[u];
    if (m < next_forward_[u] && (unit.has_backward || direction_.reversed) &&
        missing_backward_[row + m] == 0) {
      Nanos ready = ready_backward_[row + m];
      if (unit.longest_back > 0)
        ready = std::max(ready, Posted(u, kBackward, m) + unit.longest_back);
      // What is recomputed comes first, and needs no gradient yet.
      if (unit.recompute && !direction_.reversed) ready -= unit.forward;
      consider(u, kBackward, m, ready, due_backward_[row + m]);
    }
    m = next_forward_[u];
    if (m < micro_batches_ && missing_forward_[row + m] == 0 && MayStart(u)) {
      Nanos ready = ready_forward_[row + m];
      if (unit.longest_in > 0) ready = std::max(ready, Posted(u, kForward, m) + unit.longest_in);
      consider(u, kForward, m, ready, due_forward_[row + m]);
    }
    m = next_weight_[u];
    if (Splits(u) && m < next_backward_[u]) consider(u, kWeight, m, now, due_weight_[row + m]);
  }
  bool wait = best.unit < 0;
  if (!wait && coming.unit >= 0 && coming.due < best.due) {
    const Nanos time = TimeOf(best.unit, best.phase);
    wait = static_cast<double>(coming.ready - now) <= patience_ * static_cast<double>(time);
    if (wait) wake = coming.ready;
  }
  if (!wait) {
    Start(best.unit, best.phase, now);
  } else if (wake != kNever) {
    events_.push_back({wake, device});
    std::push_heap(events_.begin(), events_.end(), std::greater<>());
  }
}

void ListScheduler::Start(int32_t unit, Phase phase, Nanos now) {
  const TaskGraph::Unit& u = graph_->units[unit];
  const bool splits = Splits(unit);
  const Nanos time = TimeOf(unit, phase);
  int32_t micro_batch = 0;
  bool releases = false;
  switch (phase) {
    case kForward:
      micro_batch = next_forward_[unit]++;
      used_[u.device] += u.kept;
      break;
    case kBackward:
      micro_batch = next_backward_[unit]++;
      started_backward_[static_cast<size_t>(unit) * micro_batches_ + micro_batch] = now;
      releases = !splits;
      break;
    case kWeight:
      micro_batch = next_weight_[unit]++;
      releases = true;
      break;
  }
  // The next decision on this device comes after the pass, so that its memory can be given back
  // now.
  if (releases) {
    used_[u.device] -= u.kept;
    ++released_[unit];
  }
  done_.push_back({unit, phase, micro_batch, phase == kBackward && !splits, now, now + time});
  if (phase == kBackward && u.recompute && !direction_.reversed)
    past_[u.device].push_back({LanePass(), now + u.forward});
  const LanePass::Kind kind = phase == kForward    ? LanePass::Kind::kForward
                              : phase == kBackward ? LanePass::Kind::kGradients
                                                   : LanePass::Kind::kOther;
  past_[u.device].push_back({{kind, WorkOf(unit, micro_batch)}, now + time});
  free_[u.device] = now + time;
  work_[u.device] -= time;
  events_.push_back({now + time, u.device});
  std::push_heap(events_.begin(), events_.end(), std::greater<>());
  if (phase != kWeight) Deliver(unit, phase, now + time);
}

void ListScheduler::Deliver(int32_t unit, Phase phase, Nanos end) {
  const int32_t m = (phase == kForward ? next_forward_ : next_backward_)[unit] - 1;
  const bool there = (phase == kForward) != direction_.reversed;  // Which part of the link it uses.
  const auto send = [&](const TaskGraph::Link& link, int32_t to, std::vector<Nanos>& ready,
                        std::vector<int32_t>& missing) {
    const size_t at = static_cast<size_t>(to) * micro_batches_ + m;
    Nanos arrival = end;
    if (!link.local) {
      const Nanos bytes = there ? link.there_bytes : link.back_bytes;
      Nanos start = end;
      if (bytes > 0) {
        const std::vector<int32_t>& route = there ? *link.there_route : *link.back_route;
        for (int32_t l : route) start = std::max(start, link_free_[l]);
        for (int32_t l : route) link_free_[l] = start + bytes;
      }
      arrival = start + bytes + (there ? link.there_latency : link.back_latency);
    }
    ready[at] = std::max(ready[at], arrival);
    if (--missing[at] > 0) return;
    const int32_t device = graph_->units[to].device;
    if (ready[at] < free_[device]) return;  // It is busy then, and decides when it is free.
    events_.push_back({ready[at], device});
    std::push_heap(events_.begin(), events_.end(), std::greater<>());
  };
  if (phase == kForward) {
    for (int32_t l = graph_->units[unit].out_begin; l < graph_->out_end(unit); ++l) {
      const TaskGraph::Link& link = graph_->links[l];
      if (direction_.reversed && !link.gradient) continue;
      send(link, link.to, ready_forward_, missing_forward_);
    }
    return;
  }
  for (int32_t i = graph_->units[unit].in_begin; i < graph_->in_end(unit); ++i) {
    const TaskGraph::Link& link = graph_->links[graph_->links_in[i]];
    if (!direction_.reversed && !link.gradient) continue;
    send(link, link.from, ready_backward_, missing_backward_);
  }
}

Nanos ListScheduler::Sweep(Direction direction, Nanos limit) {
  Prepare(*graph_, direction);
  for (int32_t d = 0; d < graph_->devices; ++d) {
    if (graph_->device_units[d].empty()) continue;
    events_.push_back({0, d});
    if (!direction.reversed) continue;
    for (int32_t u : graph_->device_units[d]) events_.push_back({graph_->units[u].tail, d});
  }
  std::make_heap(events_.begin(), events_.end(), std::greater<>());
  while (!events_.empty()) {
    const Event event = events_.front();
    std::pop_heap(events_.begin(), events_.end(), std::greater<>());
    events_.pop_back();
    // A busy device decides when it is free: that is an event of its own.
    if (event.time < free_[event.device]) continue;
    // What is left takes at least its own time from here on.
    const Nanos end = event.time + work_[event.device];
    if (end > limit) return end;
    Decide(event.device, event.time);
  }
  return 0;
}

ListResult ListScheduler::Run(const TaskGraph& graph, const ListRule& rule, bool orders,
                              Nanos limit) {
  ListResult result;
  graph_ = &graph;
  result.fits = true;
  for (int32_t d = 0; d < graph.devices; ++d) {
    Bytes kept = 0;
    for (int32_t u : graph.device_units[d]) kept += graph.units[u].kept;
    if (!graph.device_units[d].empty() && kept > graph.memory[d]) result.fits = false;
  }
  const Direction forwards{false, rule.split};
  const Direction backwards{true, false};
  direction_ = forwards;
  patience_ = rule.patience;
  micro_batches_ = graph.micro_batches;
  DueDates(rule);
  const Nanos given_up = Sweep(forwards, rule.rounds > 0 ? kNever : limit);
  if (given_up > 0) {
    result.step_time = given_up;
    return result;
  }
  result.step_time = Finish();
  std::vector<Done> best;
  if (rule.rounds > 0) best = done_;
  std::vector<Nanos> best_backward = started_backward_;
  for (int32_t round = 0; round < rule.rounds; ++round) {
    const std::vector<Done> there = done_;
    DueDatesFrom(there, result.step_time, false);
    Sweep(backwards, kNever);
    Nanos end = 0;
    for (const Done& done : done_) end = std::max(end, done.end);
    const std::vector<Done> back = done_;
    DueDatesFrom(back, end, rule.split);
    Sweep(forwards, kNever);
    const Nanos time = Finish();
    if (time >= result.step_time) break;
    result.step_time = time;
    best = done_;
    best_backward = started_backward_;
  }
  if (rule.rounds > 0) {
    done_ = std::move(best);
    started_backward_ = std::move(best_backward);
  }
  direction_ = forwards;
  result.busy.assign(graph.devices, 0);
  result.ends.assign(graph.devices, 0);
  for (const Done& done : done_) {
    const int32_t d = graph.units[done.unit].device;
    result.busy[d] += done.end - done.start;
    result.ends[d] = std::max(result.ends[d], done.end);
  }
  if (orders) result.orders = Orders();
  return result;
}

}  // namespace stagewright
