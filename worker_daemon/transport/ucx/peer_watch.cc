#include "worker_daemon/transport/ucx/peer_watch.h"

namespace stagewright {

PeerWatch::PeerWatch(absl::string_view process, absl::string_view life)
    : process_(ProcessWatch::Open(process)), life_(LifeWatch::Open(life)) {}

std::string PeerWatch::TakeEnd() {
  const bool process_ended = process_ != nullptr && process_->Ended();
  const bool life_ended = life_ != nullptr && life_->Ended();
  if (process_ended) process_.reset();
  if (life_ended) life_.reset();
  if (process_ended) return "its process ended";
  return life_ended ? "its transport ended" : "";
}

std::vector<int> PeerWatch::fds() const {
  std::vector<int> fds;
  if (process_ != nullptr && process_->fd() >= 0) fds.push_back(process_->fd());
  if (life_ != nullptr && life_->fd() >= 0) fds.push_back(life_->fd());
  return fds;
}

}  // namespace stagewright
