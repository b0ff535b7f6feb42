// The short messages by which UCX transports greet and leave one another.
//
// Invariant: a receive is with UCX, or waits for Listen; so every message that arrives is taken
// once, in the order of arrival, and told if the key proves it. Not thread-safe.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "worker_daemon/transport/identity.h"
#include "worker_daemon/transport/proof/generation_key.h"
#include "worker_daemon/transport/ucx/ucx_worker.h"

namespace stagewright {

// What a control message says; stands in the channel field of its tag.
enum class UcxControl : uint32_t { kHello = 0, kHelloAnswer = 1, kBye = 2, kByeAnswer = 3 };

struct UcxControlMessage {
  int from = 0;  // Device.
  UcxControl type = UcxControl::kHello;
  std::string text;
};

class UcxControlLine {
 public:
  static constexpr size_t kMaxText = 256;  // Bytes; what is longer is cut.

  // Both outlive the calls. `worker` ends before this does, since it refers to buffers here until
  // then; nothing is called after that.
  UcxControlLine(const TransportIdentity& identity, const GenerationKey* key, UcxWorker* worker);
  ~UcxControlLine();
  UcxControlLine(const UcxControlLine&) = delete;
  UcxControlLine& operator=(const UcxControlLine&) = delete;

  // To the device `to`. `sent` is called when UCX is done with the message, delivered or not,
  // perhaps before this returns; never if the worker ends first.
  void Send(ucp_ep_h endpoint, int to, UcxControl type, absl::string_view text,
            std::function<void()> sent);

  // What has arrived since the last call.
  std::vector<UcxControlMessage> Take();

  // A message that called itself that device's was another's, and is passed over. Logs the first.
  void Refuse(int claimed);

  // Makes room for more messages. Whether there was anything to do.
  bool Listen();

  // Before the worker ends: takes the receives back from UCX.
  void StopListening();

 private:
  struct Outgoing;
  struct Receive;

  void Post(Receive& receive);
  static void OnSent(void* request, ucs_status_t status, void* user_data);
  static void OnReceived(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                         void* user_data);

  const TransportIdentity identity_;
  const GenerationKey* const key_;
  UcxWorker* const worker_;
  std::list<Outgoing> outgoing_;
  std::vector<std::unique_ptr<Receive>> receives_;
  std::vector<Receive*> to_post_;
  std::vector<UcxControlMessage> arrived_;
  bool refused_ = false;
};

}  // namespace stagewright
