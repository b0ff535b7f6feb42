// How the messages of a program's channels travel from and to one device.
//
// Devices whose accelerators are one group exchange packed messages (message.h) in their memory,
// other devices of one process hand tensors over by reference, and all others exchange packed
// messages in host memory. So neither end writes to what it has handed over or received.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/status.h"
#include "common/program/program.h"
#include "common/training/autocast.h"
#include "worker_daemon/messages/message.h"
#include "worker_daemon/messages/tag_counter.h"
#include "worker_daemon/step/step_action.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

// Called once for each transfer when it has ended, on any thread.
using EndTransfer = std::function<void(const StepAction& transfer, absl::Status status)>;

struct Route {
  int peer = 0;
  Transport* transport = nullptr;  // Null: the channel has no messages here.
  bool device_memory = false;
  ReferenceTransport* by_reference = nullptr;  // Goes before the transport.
};

// Thread-safe once the routes are found, as far as a TagCounter is.
class ChannelRoutes {
 public:
  // All references must outlive it; `transport` may be null if no message is sent or received.
  ChannelRoutes(const MessageTypes& types, const Program& program, DeviceId device,
                Transport* transport, uint32_t first_channel)
      : types_(types),
        program_(program),
        device_(device),
        transport_(transport),
        tags_(first_channel, program.channels.size()) {}

  // Asks the transport, which is connected by now, for the routes; only the first call does.
  void FindRoutes();

  DeviceId device() const { return device_; }

  // All below take a transfer. REQUIRES: FindRoutes was called.
  const Route& RouteOf(const Action& transfer) const { return routes_[transfer.channel]; }
  DType TypeOf(ValueRef value) const { return types_[value]; }  // In messages.
  const std::vector<ValueRef>& ValuesOf(const Action& transfer) const;
  MessageLayout LayoutOf(const Action& transfer) const;
  // Call it once for each transfer, when it starts.
  Tag NextTag(const Action& transfer);

 private:
  const MessageTypes& types_;
  const Program& program_;
  const DeviceId device_;
  Transport* const transport_;
  TagCounter tags_;
  std::vector<Route> routes_;  // By channel.
};

}  // namespace stagewright
