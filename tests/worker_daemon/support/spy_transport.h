// A transport that looks at what the devices of one process hand over to one another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "tests/worker_daemon/support/transports/transport_factory.h"
#include "worker_daemon/messages/message.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright::testing {

// What went from one device to another by reference, in the order of sending.
struct SeenMessage {
  int from = 0;
  int to = 0;
  Tag tag;
  std::vector<const void*> data;  // Where its tensors lie; null for undefined ones.
  // If the log keeps messages, so that later changes show:
  std::shared_ptr<const TensorMessage> message;
  std::vector<at::Tensor> copies;  // Its tensors when they were sent.
};

// A receive that a device posted.
struct SeenReceive {
  int device = 0;
  Tag tag;
  Nanos posted = 0;            // On the clock of trace events.
  const void* data = nullptr;  // Null by reference.
  size_t bytes = 0;
};

// Thread-safe.
class SpyLog {
 public:
  explicit SpyLog(bool keeps_messages = false) : keeps_messages_(keeps_messages) {}

  bool keeps_messages() const { return keeps_messages_; }
  void Add(SeenMessage message);
  void Add(SeenReceive receive);
  void CountBytes();  // A message of bytes was sent.
  std::vector<SeenMessage> messages() const;
  std::vector<SeenReceive> receives() const;
  int byte_messages() const;

 private:
  const bool keeps_messages_;
  mutable absl::Mutex mutex_;
  std::vector<SeenMessage> messages_ ABSL_GUARDED_BY(mutex_);
  std::vector<SeenReceive> receives_ ABSL_GUARDED_BY(mutex_);
  int byte_messages_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Local transports that tell `log`, which must outlive them. Without `by_reference` all messages
// are of bytes.
TransportFactory SpyOn(SpyLog& log, bool by_reference = true);

}  // namespace stagewright::testing
