// A planner that was stopped, or cut off from etcd, may have calls to answer when another one leads
// already: what it knows may be old then, in refusals, too.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <memory>

namespace stagewright {

// For ServerBuilder. Once `leads` is false, calls that were answered and are about to end so are
// UNAVAILABLE instead; a write may have been done then, as where no answer comes. `leads` is called
// from any thread.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> OnlyCurrentAnswers(
    std::function<bool()> leads);

}  // namespace stagewright
