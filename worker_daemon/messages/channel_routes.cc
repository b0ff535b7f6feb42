#include "worker_daemon/messages/channel_routes.h"

#include "worker_daemon/messages/tensor_pieces.h"

namespace stagewright {

void ChannelRoutes::FindRoutes() {
  if (!routes_.empty() || transport_ == nullptr) return;
  routes_.resize(program_.channels.size());
  for (size_t c = 0; c < routes_.size(); ++c) {
    const Channel& channel = program_.channels[c];
    if (channel.local() || (channel.source != device_ && channel.target != device_)) continue;
    Route& route = routes_[c];
    route.peer = channel.source == device_ ? channel.target.value() : channel.source.value();
    route.transport = transport_->ForDeviceMemory({route.peer});
    route.device_memory = route.transport != nullptr;
    if (route.device_memory) continue;
    route.transport = transport_;
    route.by_reference = transport_->ByReference(route.peer);
  }
}

const std::vector<ValueRef>& ChannelRoutes::ValuesOf(const Action& transfer) const {
  return stagewright::ValuesOf(program_.channels[transfer.channel], DirectionOf(transfer.kind));
}

MessageLayout ChannelRoutes::LayoutOf(const Action& transfer) const {
  return MessageLayout(types_, ValuesOf(transfer), transfer.samples.size());
}

Tag ChannelRoutes::NextTag(const Action& transfer) {
  const bool activation = DirectionOf(transfer.kind) == Direction::kActivation;
  return tags_.Next(transfer.channel, activation ? Traffic::kActivation : Traffic::kGradient);
}

}  // namespace stagewright
