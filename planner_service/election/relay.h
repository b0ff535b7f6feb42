// Passes calls on to another server, whatever they are, message by message and both ways.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <functional>
#include <memory>

#include "grpcpp/channel.h"

namespace stagewright {

// Calls that were passed on already are refused: two planners would hand them to and fro. Deadlines,
// cancellation, and statuses with their details and metadata come along, and who calls, by
// `authorization`, certificate and address (planner_service/access/relayed_caller.h); no other
// metadata of callers does. Thread-safe.
class Relay : public grpc::CallbackGenericService {
 public:
  // Where calls go; null: nowhere at the moment, they are UNAVAILABLE.
  using Target = std::function<std::shared_ptr<grpc::Channel>()>;

  explicit Relay(Target target) : target_(std::move(target)) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  const Target target_;
};

}  // namespace stagewright
