#include "worker_daemon/transport/arranged/hosted_arranger.h"

namespace stagewright {

std::vector<TransferOrder> HostedArranger::Arrange() {
  for (TransferOffer& offer : offers_) arranger_.Add(std::move(offer));
  offers_.clear();
  std::vector<TransferOrder> others;
  for (TransferOrder& order : arranger_.Take()) {
    if (order.device == device_) {
      own_.push_back(std::move(order));
    } else {
      ++untold_[order.round];
      others.push_back(std::move(order));
    }
  }
  return others;
}

void HostedArranger::Told(uint64_t round) {
  const auto untold = untold_.find(round);
  if (--untold->second == 0) untold_.erase(untold);
}

std::vector<TransferOrder> HostedArranger::TakeOwn() {
  std::vector<TransferOrder> due;
  while (own_due()) {
    due.push_back(std::move(own_.front()));
    own_.pop_front();
  }
  return due;
}

void HostedArranger::Clear() {
  offers_.clear();
  own_.clear();
}

}  // namespace stagewright
