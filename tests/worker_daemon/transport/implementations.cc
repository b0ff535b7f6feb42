// The transports that run on any machine.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "tests/worker_daemon/transport/copy_mover.h"
#include "tests/worker_daemon/transport/device_face.h"
#include "tests/worker_daemon/transport/worlds.h"
#include "worker_daemon/transport/local/local_transport.h"
#include "worker_daemon/transport/routing/routing_transport.h"
#if STAGEWRIGHT_HAVE_UCX
#include "worker_daemon/transport/ucx/ucx_transport.h"
#endif

namespace stagewright::testing {
namespace {

template <typename T, typename... Options>
Implementation Make(std::string name, Options... options) {
  return {std::move(name),
          [=](TransportIdentity identity) -> absl::StatusOr<std::unique_ptr<Transport>> {
            return T::Create(std::move(identity), options...);
          }};
}

template <typename T, typename... Options>
Implementation MakeAcross(std::string name, Options... options) {
  Implementation implementation = Make<T>(std::move(name), options...);
  implementation.crosses_processes = true;
  return implementation;
}

// The way for device memory of a RoutingTransport, which copies here.
Implementation MakeArranged(std::string name) {
  Implementation implementation{
      std::move(name),
      [](TransportIdentity identity) -> absl::StatusOr<std::unique_ptr<Transport>> {
        RoutingOptions options;
        options.mover = MakeCopyMover();
        options.accelerator = absl::StrCat("copied ", identity.device);
        ASSIGN_OR_RETURN(auto whole, RoutingTransport::Create(identity, std::move(options)));
        return std::make_unique<DeviceFace>(std::move(whole));
      }};
  implementation.isolates_losses = false;
  return implementation;
}

}  // namespace

std::vector<Implementation> AllImplementations() {
  std::vector<Implementation> all = {Make<LocalTransport>("Local"), MakeArranged("Arranged")};
#if STAGEWRIGHT_HAVE_UCX
  all.push_back(MakeAcross<UcxTransport>("UcxDefault", UcxOptions{}));
  all.push_back(MakeAcross<UcxTransport>("UcxSharedMemory", UcxOptions{.tls = "posix,self"}));
  all.push_back(MakeAcross<UcxTransport>(
      "UcxTcp", UcxOptions{.tls = "tcp,self", .key = std::string(GenerationKey::kBytes, 'k')}));
#endif
  all.push_back(MakeAcross<RoutingTransport>("Routing"));
  all.back().crosses_processes = STAGEWRIGHT_HAVE_UCX;
  return all;
}

}  // namespace stagewright::testing
