// The memory of simulated accelerators is that of the process: a copy moves it, once the stream
// that makes it has come so far.
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/worker_daemon/support/tested_accelerator.h"
#include "tests/worker_daemon/support/transports/device_memory_transport.h"
#include "tests/worker_daemon/transport/copy_mover.h"
#include "tests/worker_daemon/transport/delegating_mover.h"
#include "worker_daemon/transport/routing/routing_transport.h"

namespace stagewright::testing {
namespace {

class SimulatedMover : public DelegatingMover {
 public:
  explicit SimulatedMover(at::Device device)
      : DelegatingMover(MakeCopyMover()), device_(device), streams_(device.type()) {}

  std::shared_ptr<void> Mark() override {
    auto event = std::make_shared<c10::Event>(device_.type());
    event->record(streams_.getStream(device_));
    return event;
  }
  bool Passed(const std::shared_ptr<void>& mark) override {
    return static_cast<c10::Event*>(mark.get())->query();
  }

 private:
  const at::Device device_;
  const c10::impl::VirtualGuardImpl streams_;
};

}  // namespace

absl::StatusOr<TransportFactory> TestedMemoryTransports() {
  return [](const TransportIdentity& identity) -> absl::StatusOr<std::unique_ptr<Transport>> {
    ASSIGN_OR_RETURN(const std::string device, TestedAccelerator(identity.device));
    RoutingOptions options;
    options.mover = std::make_unique<SimulatedMover>(at::Device(device));
    options.accelerator = absl::StrCat("simulated ", identity.device);
    ASSIGN_OR_RETURN(auto whole, RoutingTransport::Create(identity, std::move(options)));
    return RequireDeviceMemory(std::move(whole));
  };
}

}  // namespace stagewright::testing
