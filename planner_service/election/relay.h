// Passes calls on to another server, whatever they are, message by message and both ways.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/async_generic_service.h>

#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "absl/synchronization/mutex.h"

namespace stagewright {

// Calls that were passed on already are refused: two planners would hand them to and fro.
// Deadlines, cancellation, and statuses with their details and metadata come along, and who calls,
// by `authorization`, certificate and address (planner_service/access/relayed_caller.h); no other
// metadata of callers does. Thread-safe.
class Relay : public grpc::CallbackGenericService {
 public:
  // Where calls go; null: nowhere at the moment, they are UNAVAILABLE.
  using Target = std::function<std::shared_ptr<grpc::Channel>()>;

  explicit Relay(Target target) : target_(std::move(target)) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  // Ends calls under way with UNAVAILABLE, whether or not who was to answer them is heard of any
  // more: all to which `target` has said where to before. Others may be among them.
  void EndCalls();

 private:
  // Who still has a call may cancel it, when it is over, too.
  using Onward = std::shared_ptr<grpc::ClientContext>;
  void Remove(const Onward& onward);

  const Target target_;
  absl::Mutex mutex_;
  std::set<Onward> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagewright
