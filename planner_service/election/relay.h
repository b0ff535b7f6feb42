// Passes calls on to another server, whatever they are, message by message and both ways.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/async_generic_service.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/synchronization/mutex.h"

namespace stagewright {

// Calls that were passed on already are refused: two planners would hand them to and fro.
// Deadlines, cancellation, and statuses with their details and metadata come along, and who calls,
// by `authorization`, certificate and address (planner_service/access/relayed_caller.h); no other
// metadata of callers does. Thread-safe.
class Relay : public grpc::CallbackGenericService {
 public:
  // Where calls go now, by which leadership: a later one has a greater number.
  struct Leader {
    std::shared_ptr<grpc::Channel> channel;  // Null: nowhere, calls are UNAVAILABLE.
    int64_t epoch = 0;
  };
  using Target = std::function<Leader()>;

  explicit Relay(Target target) : target_(std::move(target)) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  // Ends calls under way that went to leaders before `epoch` with UNAVAILABLE, whether or not who
  // was to answer them is heard of any more. From then on `target` names none of those.
  void EndCallsBefore(int64_t epoch);

 private:
  // Who still has a call may cancel it, when it is over, too.
  using Onward = std::shared_ptr<grpc::ClientContext>;

  const Target target_;
  absl::Mutex mutex_;
  int64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;                // The first whose calls go on.
  std::map<Onward, int64_t> calls_ ABSL_GUARDED_BY(mutex_);  // With the epoch of their leader.
};

}  // namespace stagewright
