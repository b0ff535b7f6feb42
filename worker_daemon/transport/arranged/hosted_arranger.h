// The arranger at work on its device, which is told what all devices offer and tells them its
// orders.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "worker_daemon/transport/arranged/arranger.h"

namespace stagewright {

// Invariant: orders for its own device leave by round, and none before all orders of its round were
// told to the others. Who is done with a send may leave, and must not take with it the word that
// the receiver waits for. Not thread-safe.
class HostedArranger {
 public:
  explicit HostedArranger(int device) : device_(device) {}

  void Add(const TransferOffer& offer) { offers_.push_back(offer); }
  bool any_offers() const { return !offers_.empty(); }

  // Puts what was offered into rounds. The result is to be told to other devices, in its order,
  // with a call of Told for each order.
  std::vector<TransferOrder> Arrange();
  // One of the orders of Arrange has been told, or never will be.
  void Told(uint64_t round);

  // Whether TakeOwn would give something.
  bool own_due() const { return !own_.empty() && !untold_.contains(own_.front().round); }
  // The orders that its own device is to follow now.
  std::vector<TransferOrder> TakeOwn();

  // Nothing is to be started any more.
  void Clear();

 private:
  const int device_;
  std::deque<TransferOffer> offers_;
  Arranger arranger_;
  std::deque<TransferOrder> own_;
  std::map<uint64_t, int> untold_;  // How many orders to others are on their way, by round.
};

}  // namespace stagewright
