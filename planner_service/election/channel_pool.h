// Connections to one server, as many as its calls need.
#pragma once

#include <grpcpp/channel.h>

#include <functional>
#include <memory>

namespace stagewright {

// A connection of HTTP/2 carries only so many calls at once (100 is common); more wait until others
// end, and watches do not end. Thread-safe.
class ChannelPool {
 public:
  // Opens a channel with a connection of its own.
  using Open = std::function<std::shared_ptr<grpc::Channel>()>;

  explicit ChannelPool(Open open);
  ~ChannelPool();

  // For one call, which holds it as long as it lasts; also when the pool is gone. Of the channels
  // with room the first, so that those opened for a crowd fall idle after it and are closed.
  std::shared_ptr<grpc::Channel> Take();

  static constexpr int kCalls = 64;  // At once on a channel.
  // Beyond kCalls * kMost calls, channels get more of them, all alike.
  static constexpr int kMost = 256;

  size_t size() const;  // Channels that are open.

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace stagewright
