// The transport a daemon uses: for each peer and kind of memory the best of the others.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker_daemon/transport/arranged/device_mover.h"
#include "worker_daemon/transport/local/local_transport.h"
#include "worker_daemon/transport/transport.h"
#include "worker_daemon/transport/ucx/ucx_options.h"

namespace stagewright {

class ArrangedTransport;

struct RoutingOptions {
  UcxOptions ucx;
  // For a device with an accelerator: what moves its memory, and the accelerator's name, different
  // from those of all other accelerators of the job (nccl_mover.h makes both).
  std::unique_ptr<DeviceMover> mover;
  std::string accelerator;
};

// Host memory: peers in the same process are reached through a LocalTransport, all others through
// UCX (in a build without it, not at all). By reference: peers in the same process.
//
// Device memory: if this device has a mover, all others of the job that have one, in this process
// or not, are one group (arranged_transport.h), and Connect must name them all. There is no such
// group when two devices have the same accelerator, which NCCL refuses; ForDeviceMemory() is null
// then, at all of them.
class RoutingTransport : public Transport {
 public:
  static absl::StatusOr<std::unique_ptr<RoutingTransport>> Create(const TransportIdentity& identity,
                                                                  RoutingOptions options = {});
  ~RoutingTransport() override;  // Pending operations fail with CANCELLED.

  // Whether the owner of the address, which is of a RoutingTransport, has an accelerator.
  static bool HasAccelerator(absl::string_view address);
  bool has_accelerator() const { return device_ != nullptr; }

  int device() const override { return identity_.device; }
  std::string Address() const override;
  // Errors also: FAILED_PRECONDITION for a device of another process in a build without UCX.
  absl::Status Connect(const std::vector<Peer>& peers, absl::Time deadline) override;
  void Send(int peer, Tag tag, const void* data, size_t bytes, Done done) override;
  void Receive(int peer, Tag tag, void* data, size_t bytes, Done done) override;
  void Abort(absl::Status status) override;
  // The accelerators' group opens them; OK where there is none.
  absl::Status OpenCollectives(const std::vector<std::vector<int>>& lists,
                               absl::Time deadline) override;
  Transport* ForDeviceMemory(const std::vector<int>& devices) override;
  ReferenceTransport* ByReference(int peer) override;
  void Hold() override;
  void Release() override;
  void Help(absl::FunctionRef<bool()> ready) override;

 private:
  RoutingTransport(TransportIdentity identity, RoutingOptions options,
                   std::unique_ptr<LocalTransport> local, std::unique_ptr<Transport> ucx);
  Transport& Route(int peer);

  const TransportIdentity identity_;
  const std::string accelerator_;
  const std::unique_ptr<LocalTransport> local_;
  const std::unique_ptr<Transport> ucx_;  // Null in a build without it.
  std::atomic<bool> elsewhere_ = false;   // Whether there are peers in other processes.
  absl::Mutex mutex_;
  std::map<int, Transport*> routes_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ArrangedTransport> device_;  // Null without a mover. Talks through this.
};

}  // namespace stagewright
