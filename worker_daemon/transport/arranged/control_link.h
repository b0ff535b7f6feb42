// What the devices of a group of accelerators say to one another over a transport for host memory:
// how they find each other, which operations they offer to the arranger, and its orders.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "worker_daemon/transport/arranged/arranger.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

// Stands for a list of devices where the list itself would be too long.
uint64_t Fingerprint(const std::vector<int>& devices);

// The first word to a device of the group.
struct GroupHello {
  uint64_t group = 0;  // The Fingerprint of the sender's group.
  uint32_t members = 0;
  std::string note;  // See DeviceMover::MakeNote.
};

// Thread-safe.
class ControlLink {
 public:
  // Called on threads of the control transport; must not block.
  struct Events {
    std::function<void(const GroupHello&)> on_hello;
    std::function<void(TransferOffer)> on_offer;
    std::function<void(TransferOrder)> on_order;
    std::function<void(const absl::Status&)> on_lost;  // A peer; once for each.
  };

  // For `device`. `control` must outlive this; messages of Traffic::kArrangement on it are ours.
  ControlLink(int device, Transport* control, Events events);

  // Waits until no message is under way. REQUIRES: the control transport was aborted.
  ~ControlLink();

  // Begins to listen to `peers`, to whom the control transport is connected. Call it once.
  void Listen(const std::vector<int>& peers);

  // A peer that cannot be told is lost, which on_lost says.
  void SayHello(int peer, const GroupHello& hello);
  void Offer(int arranger, const TransferOffer& offer);
  // Gives an order to order.device. `sent` is called when it was, or never will be.
  void Order(const TransferOrder& order, std::function<void()> sent);

 private:
  struct Message;
  struct Listener;

  void Send(int peer, const Message& message, std::function<void()> sent)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Receive(Listener& listener);
  void OnMessage(Listener& listener, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  const int device_;
  Transport* const control_;
  const Events events_;
  std::map<int, std::unique_ptr<Listener>> listeners_;  // By peer; set by Listen.
  absl::Mutex mutex_;
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;  // Messages sent, and peers listened to.
};

}  // namespace stagewright
