#include "planner_service/models/timeline.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace stagewright {
namespace {

constexpr int64_t kPassesPerPoll = 250;

// Indices of the messages by one of their ends, and where those of each unit begin.
void IndexMessages(const TimelineCosts& costs, int32_t TimelineCosts::Message::*end,
                   std::vector<int32_t>& index, std::vector<int32_t>& begin) {
  begin.assign(costs.times.size() + 1, 0);
  for (const TimelineCosts::Message& message : costs.messages) ++begin[message.*end];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  index.resize(costs.messages.size());
  for (size_t i = index.size(); i-- > 0;) {
    index[--begin[costs.messages[i].*end]] = static_cast<int32_t>(i);
  }
}

// Calls visit(micro-batch of `other`, samples) for each that has samples of this one of `unit`.
template <typename Visit>
void ForOverlaps(const PassLanes::Unit& unit, int32_t micro_batch, const PassLanes::Unit& other,
                 const Visit& visit) {
  if (unit.samples == other.samples) {
    visit(micro_batch, static_cast<double>(unit.samples));
    return;
  }
  const int64_t end = (micro_batch + 1) * unit.samples;
  for (int64_t at = micro_batch * unit.samples; at < end;) {
    const int64_t until = std::min(end, (at / other.samples + 1) * other.samples);
    visit(static_cast<int32_t>(at / other.samples), static_cast<double>(until - at));
    at = until;
  }
}

}  // namespace

void Timeline::Prepare(const TimelineCosts& costs) {
  costs_ = &costs;
  IndexMessages(costs, &TimelineCosts::Message::from, out_, out_begin_);
  IndexMessages(costs, &TimelineCosts::Message::to, in_, in_begin_);
  starts_.resize(lanes_.passes().size());
  ends_.resize(lanes_.passes().size());
  ready_.assign(lanes_.slots(), 0);
  free_.assign(lanes_.devices(), 0);
  sent_.clear();
}

// What only a timeline in order of time needs.
void Timeline::CountMissing() {
  starts_.assign(lanes_.passes().size(), -1);
  missing_.assign(lanes_.slots(), 0);
  for (const TimelineCosts::Message& message : costs_->messages) {
    const PassLanes::Unit& from = lanes_.units()[message.from];
    const PassLanes::Unit& to = lanes_.units()[message.to];
    for (int32_t m = 0; m < from.micro_batches; ++m) {
      ForOverlaps(from, m, to, [&](int32_t other, double) {
        ++missing_[lanes_.SlotOf(message.to, other, false)];
        if (message.gradient) ++missing_[lanes_.SlotOf(message.from, m, true)];
      });
    }
  }
  rest_.assign(lanes_.devices(), 0);
  for (const PassLanes::Placed& pass : lanes_.passes()) {
    rest_[pass.device] += costs_->times[pass.unit][static_cast<size_t>(pass.kind)];
  }
}

void Timeline::Start(int32_t position) {
  const PassLanes::Placed& pass = lanes_.passes()[position];
  double& free = free_[pass.device];
  const double start = pass.slot < 0 ? free : std::max(free, ready_[pass.slot]);
  starts_[position] = start;
  free = start + costs_->times[pass.unit][static_cast<size_t>(pass.kind)];
  ends_[position] = free;
}

// REQUIRES: the passes before it on its device have ended.
void Timeline::StartIfReady(int32_t position) {
  const PassLanes::Placed& pass = lanes_.passes()[position];
  if (pass.slot >= 0 && missing_[pass.slot] > 0) return;
  Start(position);
  next_[pass.device] = -1;
  rest_[pass.device] -= ends_[position] - starts_[position];
  events_.push_back({ends_[position], position});
  std::push_heap(events_.begin(), events_.end(), std::greater<>());
}

template <LinkModel kLinks>
double Timeline::Arrival(const Waiting& sent, double leaves) {
  const TimelineCosts::Message& message = costs_->messages[sent.message];
  const TimelineCosts::Way& way = sent.back ? message.back : message.there;
  if constexpr (kLinks == LinkModel::kShared) {
    double end = leaves;
    for (const auto& [link, bytes] : way.links) {
      const double time = bytes * sent.samples * 1e9 / costs_->rates[link];
      double& free = links_free_[link];
      free = std::max(free, leaves) + time;
      end = std::max(end, free);
    }
    return end + way.latency;
  }
  const double time = way.latency + way.time * sent.samples;
  if constexpr (kLinks == LinkModel::kUnlimited) return leaves + time;
  double& channel = channels_[2 * sent.message + (sent.back ? 1 : 0)];
  const double begin = std::max(leaves, channel);
  sent_.push_back({sent.message, sent.back, begin, time});
  return channel = begin + time;
}

// A message for the pass that reads `slot`, whose sender has ended.
template <LinkModel kLinks, bool kOrdered>
void Timeline::Offer(int32_t slot, const Waiting& sent) {
  const TimelineCosts::Message& message = costs_->messages[sent.message];
  double arrival = sent.sent;
  if (lanes_.units()[message.from].device != lanes_.units()[message.to].device) {
    if constexpr (kLinks != LinkModel::kUnlimited) {
      if (posted_[slot] < 0) {
        pool_.push_back(sent);
        pool_.back().next = waiting_[slot];
        waiting_[slot] = static_cast<int32_t>(pool_.size()) - 1;
        return;
      }
      arrival = std::max(arrival, posted_[slot]);
    }
    arrival = Arrival<kLinks>(sent, arrival);
  }
  ready_[slot] = std::max(ready_[slot], arrival);
  if constexpr (!kOrdered) {
    const int32_t reader = lanes_.reader(slot);
    if (--missing_[slot] == 0 && next_[lanes_.passes()[reader].device] == reader) {
      StartIfReady(reader);
    }
  }
}

template <LinkModel kLinks, bool kOrdered>
void Timeline::Finish(int32_t position) {
  const PassLanes::Placed& pass = lanes_.passes()[position];
  if (pass.slot >= 0) Send<kLinks, kOrdered>(pass, ends_[position]);
  if constexpr (kLinks != LinkModel::kUnlimited) Post<kLinks, kOrdered>(position, ends_[position]);
}

template <LinkModel kLinks, bool kOrdered>
void Timeline::Send(const PassLanes::Placed& pass, double now) {
  const bool back = pass.kind == PassKind::kBackward;
  for (int32_t i : back ? Incoming(pass.unit) : Outgoing(pass.unit)) {
    const TimelineCosts::Message& message = costs_->messages[i];
    if (back && !message.gradient) continue;
    const int32_t reader = back ? message.from : message.to;
    ForOverlaps(
        lanes_.units()[pass.unit], pass.micro_batch, lanes_.units()[reader],
        [&](int32_t other, double samples) {
          Offer<kLinks, kOrdered>(lanes_.SlotOf(reader, other, back), {i, back, samples, now, -1});
        });
  }
}

// Posts the receives of what waited for the end of a pass.
template <LinkModel kLinks, bool kOrdered>
void Timeline::Post(int32_t position, double now) {
  for (int32_t reader : lanes_.PostedBy(position)) {
    const int32_t slot = lanes_.passes()[reader].slot;
    posted_[slot] = now;
    for (int32_t w = std::exchange(waiting_[slot], -1); w >= 0;) {
      const Waiting message = pool_[w];
      Offer<kLinks, kOrdered>(slot, message);
      w = message.next;
    }
  }
}

double Timeline::StepTime() const {
  double end = 0;
  for (int32_t u = 0; u < static_cast<int32_t>(lanes_.units().size()); ++u) {
    if (lanes_.last(u) < 0) continue;
    end = std::max(end, ends_[lanes_.last(u)] + (costs_->updates.empty() ? 0 : costs_->updates[u]));
  }
  return end;
}

template <LinkModel kLinks>
void Timeline::PrepareLinks() {
  if constexpr (kLinks == LinkModel::kUnlimited) return;
  posted_.assign(lanes_.slots(), -1);
  waiting_.assign(lanes_.slots(), -1);
  pool_.clear();
  if constexpr (kLinks == LinkModel::kShared) links_free_.assign(costs_->rates.size(), 0);
  if constexpr (kLinks == LinkModel::kInTurn) channels_.assign(2 * costs_->messages.size(), 0);
}

double Timeline::InTurn() {
  PrepareLinks<LinkModel::kInTurn>();
  Post<LinkModel::kInTurn, true>(-1, 0);
  for (int32_t p = 0; p < static_cast<int32_t>(lanes_.passes().size()); ++p) {
    Start(p);
    Finish<LinkModel::kInTurn, true>(p);
  }
  return StepTime();
}

// Edges by what they enter, the forward passes of each unit before all backward passes.
void Timeline::FindEdges() {
  const auto units = static_cast<int32_t>(lanes_.units().size());
  edges_.clear();
  edges_begin_.clear();
  for (int32_t u = 0; u < 2 * units; ++u) {
    edges_begin_.push_back(static_cast<int32_t>(edges_.size()));
    const bool back = u >= units;
    for (int32_t i : back ? Outgoing(u - units) : Incoming(u)) {
      const TimelineCosts::Message& message = costs_->messages[i];
      if (back && !message.gradient) continue;
      const PassLanes::Unit& from = lanes_.units()[message.from];
      const PassLanes::Unit& to = lanes_.units()[message.to];
      CHECK(from.samples == to.samples);
      const TimelineCosts::Way& way = back ? message.back : message.there;
      const double time = way.latency + way.time * static_cast<double>(from.samples);
      edges_.push_back({lanes_.SlotOf(back ? message.to : message.from, 0, back),
                        from.device == to.device ? 0 : time});
    }
  }
  edges_begin_.push_back(static_cast<int32_t>(edges_.size()));
}

// Each pass asks those that it reads when they ended: `ready_` holds the end of a slot's pass.
double Timeline::LongestPath() {
  FindEdges();
  const auto units = static_cast<int32_t>(lanes_.units().size());
  for (size_t p = 0; p < ends_.size(); ++p) {
    const PassLanes::Placed& pass = lanes_.passes()[p];
    double start = free_[pass.device];
    if (pass.slot >= 0) {
      const int32_t reader = pass.unit + (pass.kind == PassKind::kBackward ? units : 0);
      for (int32_t e = edges_begin_[reader]; e < edges_begin_[reader + 1]; ++e) {
        const auto& [first_slot, time] = edges_[e];
        start = std::max(start, ready_[first_slot + pass.micro_batch] + time);
      }
    }
    const double end = start + costs_->times[pass.unit][static_cast<size_t>(pass.kind)];
    starts_[p] = start;
    ends_[p] = free_[pass.device] = end;
    if (pass.slot >= 0) ready_[pass.slot] = end;
  }
  return StepTime();
}

template <LinkModel kLinks>
double Timeline::ByTime(const Options& options) {
  PrepareLinks<kLinks>();
  CountMissing();
  events_.clear();
  next_.clear();
  for (int32_t d = 0; d < lanes_.devices(); ++d) next_.push_back(lanes_.head(d));
  if constexpr (kLinks != LinkModel::kUnlimited) Post<kLinks, false>(-1, 0);
  for (int32_t head : next_) {
    if (head >= 0) StartIfReady(head);
  }
  size_t ended = 0;
  while (!events_.empty()) {
    ++ended;
    if (options.context && ended % kPassesPerPoll == 0 &&
        options.context->Expired(kPassesPerPoll * work::kTimelinePass))
      return kNever;
    const auto [now, position] = events_.front();
    std::pop_heap(events_.begin(), events_.end(), std::greater<>());
    events_.pop_back();
    const PassLanes::Placed& pass = lanes_.passes()[position];
    // What its device has left takes at least its own time.
    if (now + rest_[pass.device] > options.limit) return now + rest_[pass.device];
    Finish<kLinks, false>(position);
    next_[pass.device] = pass.next;
    if (pass.next >= 0) StartIfReady(pass.next);
  }
  return ended < lanes_.passes().size() ? kNever : StepTime();
}

double Timeline::Run(const TimelineCosts& costs, const Options& options) {
  Prepare(costs);
  switch (options.links) {
    case LinkModel::kUnlimited:
      return options.ordered ? LongestPath() : ByTime<LinkModel::kUnlimited>(options);
    case LinkModel::kInTurn:
      return options.ordered ? InTurn() : ByTime<LinkModel::kInTurn>(options);
    case LinkModel::kShared:
      CHECK(!options.ordered);
      return ByTime<LinkModel::kShared>(options);
  }
  return kNever;
}

}  // namespace stagewright
