#include "worker_daemon/transport/arranged/arranger.h"

#include <algorithm>
#include <utility>

namespace stagewright {
namespace {

// Which devices already send or receive in a round.
struct Occupied {
  std::set<int> sending;
  std::set<int> receiving;
};

// A reduction has its round to itself: it goes through another communicator, and devices outside it
// lose nothing by a number more.
bool Fits(const Occupied& round, const TransferOffer& send, const TransferOffer& receive) {
  return !round.sending.contains(send.device) && !round.receiving.contains(receive.device);
}

TransferOrder OrderFor(const TransferOffer& offer, uint64_t round) {
  TransferOrder order;
  order.device = offer.device;
  order.id = offer.id;
  order.round = round;
  return order;
}

}  // namespace

void Arranger::Add(TransferOffer offer) {
  if (offer.kind == TransferOffer::Kind::kReduce) return AddReduction(std::move(offer));
  const bool is_send = offer.kind == TransferOffer::Kind::kSend;
  const PairKey key(is_send ? offer.device : offer.peer, is_send ? offer.peer : offer.device,
                    offer.tag);
  Waiting& waiting = pairs_[key];
  std::deque<TransferOffer>& counterparts = is_send ? waiting.receives : waiting.sends;
  if (counterparts.empty()) {
    (is_send ? waiting.sends : waiting.receives).push_back(std::move(offer));
    return;
  }
  Match match;
  match.mismatch = offer.bytes != counterparts.front().bytes;
  match.parts.push_back(std::move(offer));
  match.parts.push_back(std::move(counterparts.front()));
  counterparts.pop_front();
  if (counterparts.empty()) pairs_.erase(key);
  if (!is_send) std::swap(match.parts[0], match.parts[1]);
  matches_.push_back(std::move(match));
}

void Arranger::AddReduction(TransferOffer offer) {
  const GroupKey key(offer.group, offer.members, offer.tag);
  auto& waiting = groups_[key];
  const uint32_t members = offer.members;
  waiting[offer.device].push_back(std::move(offer));
  if (waiting.size() < members) return;
  Match match;
  for (auto member = waiting.begin(); member != waiting.end();) {
    match.parts.push_back(std::move(member->second.front()));
    member->second.pop_front();
    member = member->second.empty() ? waiting.erase(member) : std::next(member);
  }
  if (waiting.empty()) groups_.erase(key);
  const TransferOffer& first = match.parts.front();
  match.mismatch =
      std::any_of(match.parts.begin(), match.parts.end(), [&](const TransferOffer& part) {
        return part.bytes != first.bytes || part.element != first.element;
      });
  matches_.push_back(std::move(match));
}

std::vector<TransferOrder> Arranger::Take() {
  const uint64_t first = next_round_;
  std::vector<Occupied> rounds;  // From `first` on.
  std::vector<TransferOrder> orders;
  for (const Match& match : matches_) {
    size_t round = 0;
    const bool reduction = match.parts[0].kind == TransferOffer::Kind::kReduce;
    if (reduction || match.mismatch) {
      round = rounds.size();
    } else {
      while (round < rounds.size() && !Fits(rounds[round], match.parts[0], match.parts[1])) ++round;
    }
    if (round == rounds.size()) rounds.emplace_back();
    uint64_t most = 0;
    for (const TransferOffer& part : match.parts) most = std::max(most, part.bytes);
    for (const TransferOffer& part : match.parts) {
      TransferOrder order = OrderFor(part, first + round);
      order.mismatch = match.mismatch;
      order.offered = match.parts.front().bytes;
      order.expected = reduction ? most : match.parts.back().bytes;
      orders.push_back(std::move(order));
      // A reduction or a failure closes its round to all of its devices.
      if (reduction || match.mismatch || part.kind == TransferOffer::Kind::kSend) {
        rounds[round].sending.insert(part.device);
      }
      if (reduction || match.mismatch || part.kind == TransferOffer::Kind::kReceive) {
        rounds[round].receiving.insert(part.device);
      }
    }
  }
  matches_.clear();
  next_round_ += rounds.size();
  std::stable_sort(orders.begin(), orders.end(),
                   [](const TransferOrder& a, const TransferOrder& b) {
                     return std::tie(a.round, a.device) < std::tie(b.round, b.device);
                   });
  for (size_t i = 0; i + 1 < orders.size(); ++i) {
    orders[i].last_of_round =
        orders[i].round != orders[i + 1].round || orders[i].device != orders[i + 1].device;
  }
  return orders;
}

}  // namespace stagewright
