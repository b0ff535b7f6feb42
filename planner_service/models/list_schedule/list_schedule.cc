#include "planner_service/models/list_schedule/list_schedule.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "planner_service/models/list_schedule/device_orders.h"

namespace stagewright {
namespace {

constexpr Nanos kNever = std::numeric_limits<Nanos>::max();

}  // namespace

struct ListScheduler::Choice {
  int32_t unit = -1;
  PassKind kind = PassKind::kForward;
  int32_t micro_batch = 0;
  Nanos due = kNever;
  Nanos ready = kNever;
};

Nanos ListScheduler::TimeOf(int32_t unit, PassKind kind) const {
  const TaskGraph::Unit& u = graph_->units[unit];
  if (kind == PassKind::kWeight) return u.backward - u.input;
  if ((kind == PassKind::kForward) != direction_.reversed) return u.forward;
  return u.BackwardTime(direction_.split);
}

void ListScheduler::Prepare(Direction direction) {
  direction_ = direction;
  const TaskGraph& graph = *graph_;
  const auto units = static_cast<int32_t>(graph.units.size());
  for (Inputs* inputs : {&activations_, &gradients_}) {
    inputs->ready.Reset(units, graph.micro_batches, 0);
    inputs->missing.Reset(units, graph.micro_batches, 0);
  }
  units_.assign(units, {});
  devices_.resize(graph.devices);
  for (DeviceState& device : devices_) {
    device.free = device.work = 0;
    device.used = 0;
    device.past.clear();
  }
  for (int32_t u = 0; u < units; ++u) {
    const TaskGraph::Unit& unit = graph.units[u];
    int32_t forward = 0;
    int32_t backward = 0;
    for (int32_t i = unit.in_begin; i < graph.in_end(u); ++i) {
      if (!direction.reversed || graph.links[graph.links_in[i]].gradient) ++forward;
    }
    for (int32_t l = unit.out_begin; l < graph.out_end(u); ++l) {
      if (direction.reversed || graph.links[l].gradient) ++backward;
    }
    activations_.missing.Fill(u, forward);
    gradients_.missing.Fill(u, backward);
    if (direction.reversed) activations_.ready.Fill(u, unit.tail);
    devices_[unit.device].work +=
        graph.micro_batches * (unit.forward + (unit.has_backward ? unit.backward : 0));
  }
  link_free_.assign(graph.cluster_links.size(), 0);
  link_work_ = least_->link_work;
  events_.clear();
  passes_.clear();
}

ListScheduler::Reserve ListScheduler::ReserveOn(int32_t device) const {
  const std::vector<int32_t>& units = graph_->device_units[device];
  Reserve reserve{graph_->micro_batches, devices_[device].used};
  for (int32_t v : units) {
    if (graph_->units[v].has_backward)
      reserve.oldest = std::min(reserve.oldest, units_[v].released);
  }
  for (int32_t v : units) {
    if (units_[v].forward <= reserve.oldest) reserve.needed += graph_->units[v].kept;
  }
  return reserve;
}

// When the receives of a pass that would come next are posted.
Nanos ListScheduler::Posted(int32_t unit, PassKind kind, int32_t micro_batch) const {
  if (direction_.reversed) return 0;
  const TaskGraph::Unit& u = graph_->units[unit];
  const std::vector<Past>& past = devices_[u.device].past;
  // The recomputation that would come right before it is a pass, too.
  const int32_t again = kind == PassKind::kBackward && u.recompute ? 1 : 0;
  const int32_t passes = static_cast<int32_t>(past.size()) + again;
  const auto before = [&](int32_t back) {
    return back <= again ? LanePass() : past[past.size() - (back - again)].pass;
  };
  const int32_t back =
      posting_.PassesBack(LanePassOf(kind, unit, WorkOf(unit, micro_batch)), passes, before);
  if (back > passes) return 0;
  if (back <= again) return (past.empty() ? 0 : past.back().end) + u.forward;
  return past[past.size() - (back - again)].end;
}

// Calls consider(choice) for each pass that the device could run next and whose inputs are known.
template <typename Consider>
void ListScheduler::ForCandidates(int32_t device, Nanos now, const Consider& consider) const {
  std::optional<Reserve> reserve;
  const auto may_start = [&](int32_t u) {
    const Bytes kept = graph_->units[u].kept;
    if (direction_.reversed || kept == 0) return true;
    if (!reserve) reserve = ReserveOn(device);
    return units_[u].forward == reserve->oldest || reserve->needed + kept <= graph_->memory[device];
  };
  for (int32_t u : graph_->device_units[device]) {
    const TaskGraph::Unit& unit = graph_->units[u];
    int32_t m = units_[u].backward;
    if (m < units_[u].forward && (unit.has_backward || direction_.reversed) &&
        gradients_.missing(u, m) == 0) {
      Nanos ready = gradients_.ready(u, m);
      if (unit.longest_back > 0)
        ready = std::max(ready, Posted(u, PassKind::kBackward, m) + unit.longest_back);
      // What is recomputed comes first, and needs no gradient yet.
      if (unit.recompute && !direction_.reversed) ready -= unit.forward;
      consider(Choice{u, PassKind::kBackward, m, due_.backward(u, m), ready});
    }
    m = units_[u].forward;
    if (m < graph_->micro_batches && activations_.missing(u, m) == 0 && may_start(u)) {
      Nanos ready = activations_.ready(u, m);
      if (unit.longest_in > 0)
        ready = std::max(ready, Posted(u, PassKind::kForward, m) + unit.longest_in);
      consider(Choice{u, PassKind::kForward, m, due_.forward(u, m), ready});
    }
    m = units_[u].weight;
    if (SplitsHere(u) && m < units_[u].backward) {
      consider(Choice{u, PassKind::kWeight, m, due_.weight(u, m), now});
    }
  }
}

void ListScheduler::Decide(int32_t device, Nanos now) {
  work_ += static_cast<int64_t>(graph_->device_units[device].size());
  Choice best;    // The most urgent of the passes that are ready.
  Choice coming;  // The most urgent of the passes that are on their way.
  Nanos wake = kNever;
  ForCandidates(device, now, [&](const Choice& other) {
    if (other.ready > now) wake = std::min(wake, other.ready);
    Choice& choice = other.ready > now ? coming : best;
    if (other.due > choice.due ||
        (other.due == choice.due && other.micro_batch >= choice.micro_batch)) {
      return;
    }
    choice = other;
  });
  bool wait = best.unit < 0;
  if (!wait && coming.unit >= 0 && coming.due < best.due) {
    const Nanos time = TimeOf(best.unit, best.kind);
    wait = static_cast<double>(coming.ready - now) <= patience_ * static_cast<double>(time);
    if (wait) wake = coming.ready;
  }
  if (!wait) {
    Start(best.unit, best.kind, now);
  } else if (wake != kNever) {
    Wake(device, wake);
  }
}

void ListScheduler::Wake(int32_t device, Nanos time) {
  events_.push_back({time, device});
  std::push_heap(events_.begin(), events_.end(), std::greater<>());
}

void ListScheduler::Start(int32_t unit, PassKind kind, Nanos now) {
  ++work_;
  const TaskGraph::Unit& u = graph_->units[unit];
  UnitState& state = units_[unit];
  DeviceState& device = devices_[u.device];
  const bool whole = kind == PassKind::kBackward && !SplitsHere(unit);
  const Nanos end = now + TimeOf(unit, kind);
  int32_t& next = kind == PassKind::kForward    ? state.forward
                  : kind == PassKind::kBackward ? state.backward
                                                : state.weight;
  const int32_t micro_batch = next++;
  if (!direction_.reversed && kind != PassKind::kWeight) {
    const bool forward = kind == PassKind::kForward;
    const int64_t others = graph_->micro_batches - next;
    TakesAtLeast(now + others * (end - now) +
                 (forward ? least_->forward_left : least_->backward_left)[unit]);
  }
  if (kind == PassKind::kForward) device.used += u.kept;
  // The next decision on this device comes after the pass, so that its memory can be given back
  // now.
  if (whole || kind == PassKind::kWeight) {
    device.used -= u.kept;
    ++state.released;
  }
  passes_.push_back({unit, kind, micro_batch, whole, now, end});
  if (kind == PassKind::kBackward && u.recompute && !direction_.reversed)
    device.past.push_back({LanePass(), now + u.forward});
  device.past.push_back({LanePassOf(kind, unit, WorkOf(unit, micro_batch)), end});
  device.free = end;
  device.work -= end - now;
  Wake(u.device, end);
  if (kind != PassKind::kWeight) Deliver(unit, kind, micro_batch, end);
}

// Calls visit(link) for each message that a pass sends when it ends.
template <typename Visit>
void ListScheduler::ForMessages(int32_t unit, PassKind kind, const Visit& visit) const {
  if (kind == PassKind::kForward) {
    for (int32_t l = graph_->units[unit].out_begin; l < graph_->out_end(unit); ++l) {
      const TaskGraph::Link& link = graph_->links[l];
      if (!direction_.reversed || link.gradient) visit(link);
    }
    return;
  }
  for (int32_t i = graph_->units[unit].in_begin; i < graph_->in_end(unit); ++i) {
    const TaskGraph::Link& link = graph_->links[graph_->links_in[i]];
    if (direction_.reversed || link.gradient) visit(link);
  }
}

// All messages of a pass share their links until these have carried all of them.
void ListScheduler::Deliver(int32_t unit, PassKind kind, int32_t micro_batch, Nanos end) {
  // Whether they use the forward part of a link.
  const bool there = (kind == PassKind::kForward) != direction_.reversed;
  ForMessages(unit, kind, [&](const TaskGraph::Link& link) { Occupy(link, there, end); });
  ForMessages(unit, kind, [&](const TaskGraph::Link& link) {
    Nanos arrival = end;
    if (!link.local) {
      const Route& route = there ? *link.there_route : *link.back_route;
      for (int32_t l : route.links) arrival = std::max(arrival, link_free_[l]);
      arrival += there ? link.there_latency : link.back_latency;
    }
    Arrive(kind == PassKind::kForward ? link.to : link.from, kind, micro_batch, arrival);
  });
}

void ListScheduler::Occupy(const TaskGraph::Link& link, bool there, Nanos begin) {
  ++work_;
  if (link.local) return;
  const Bytes size = there ? link.there_size : link.back_size;
  const Nanos slowest = there ? link.there_bytes : link.back_bytes;
  const Route& route = there ? *link.there_route : *link.back_route;
  for (int32_t l : route.links) {
    const Nanos time = graph_->TimeOn(l, route, size, slowest);
    link_free_[l] = std::max(link_free_[l], begin) + time;
    if (direction_.reversed) continue;
    link_work_[l] -= time;
    TakesAtLeast(link_free_[l] + link_work_[l] + least_->link_left[l]);
  }
}

// Wakes the reader of a message if that was the last it waited for.
void ListScheduler::Arrive(int32_t unit, PassKind kind, int32_t micro_batch, Nanos arrival) {
  Inputs& inputs = kind == PassKind::kForward ? activations_ : gradients_;
  Nanos& ready = inputs.ready(unit, micro_batch);
  ready = std::max(ready, arrival);
  if (--inputs.missing(unit, micro_batch) > 0) return;
  const int32_t device = graph_->units[unit].device;
  if (ready < devices_[device].free) return;  // It is busy then, and decides when it is free.
  Wake(device, ready);
}

void ListScheduler::Sweep(Direction direction, Nanos limit) {
  limit_ = limit;
  bound_ = least_->step;
  Prepare(direction);
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
    if (event.time < devices_[event.device].free) continue;
    TakesAtLeast(event.time + devices_[event.device].work + least_->device_left[event.device]);
    if (Exceeds()) return;
    Decide(event.device, event.time);
  }
}

// Rounds of forward-backward improvement, as long as they help.
void ListScheduler::Improve(const ListRule& rule, ListResult& result) {
  std::vector<TimedPass> best = passes_;
  for (int32_t round = 0; round < rule.rounds; ++round) {
    const std::vector<TimedPass> there = std::move(passes_);
    MirrorDueDates(*graph_, there, result.step_time, false, due_);
    Sweep({true, false}, kNever);
    Nanos end = 0;
    for (const TimedPass& pass : passes_) end = std::max(end, pass.end);
    const std::vector<TimedPass> back = std::move(passes_);
    MirrorDueDates(*graph_, back, end, rule.split, due_);
    Sweep({false, rule.split}, kNever);
    const Nanos time = StepEnd(*graph_, passes_);
    if (time >= result.step_time) break;
    result.step_time = time;
    best = passes_;
  }
  passes_ = std::move(best);
}

ListResult ListScheduler::Run(const TaskGraph& graph, const ListRule& rule, bool orders,
                              Nanos limit) {
  SetLeastTimes(graph, rule.split, own_least_);
  return Run(graph, own_least_, rule, orders, limit);
}

ListResult ListScheduler::Run(const TaskGraph& graph, const LeastTimes& least, const ListRule& rule,
                              bool orders, Nanos limit) {
  ListResult result;
  graph_ = &graph;
  result.fits = true;
  for (int32_t d = 0; d < graph.devices; ++d) {
    Bytes kept = 0;
    for (int32_t u : graph.device_units[d]) kept += graph.units[u].kept;
    if (!graph.device_units[d].empty() && kept > graph.memory[d]) result.fits = false;
  }
  patience_ = rule.patience;
  work_ = 0;
  least_ = &least;
  result.step_time = least.step;
  if (least.step > limit) return result;
  SetDueDates(graph, least, rule, due_);
  Sweep({false, rule.split}, rule.rounds > 0 ? kNever : limit);
  result.work = work_;
  result.step_time = bound_;
  if (Exceeds()) return result;
  result.step_time = StepEnd(graph, passes_);
  if (rule.rounds > 0) Improve(rule, result);
  result.work = work_;
  result.busy.assign(graph.devices, 0);
  result.ends.assign(graph.devices, 0);
  for (const TimedPass& pass : passes_) {
    const int32_t d = graph.units[pass.unit].device;
    result.busy[d] += pass.end - pass.start;
    result.ends[d] = std::max(result.ends[d], pass.end);
  }
  if (orders) result.orders = OrdersOf(graph, passes_);
  return result;
}

}  // namespace stagewright
