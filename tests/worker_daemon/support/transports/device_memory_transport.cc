#include "tests/worker_daemon/support/transports/device_memory_transport.h"

#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace stagewright::testing {
namespace {

class DeviceMemoryTransport : public Transport {
 public:
  explicit DeviceMemoryTransport(std::unique_ptr<Transport> whole) : whole_(std::move(whole)) {}

  int device() const override { return whole_->device(); }
  std::string Address() const override { return whole_->Address(); }
  absl::Status Connect(const std::vector<Peer>& peers, absl::Time deadline) override {
    RETURN_IF_ERROR(whole_->Connect(peers, deadline));
    std::vector<int> devices = {device()};
    for (const Peer& peer : peers) devices.push_back(peer.device);
    if (whole_->ForDeviceMemory(devices) == nullptr)
      return absl::InternalError("there is no way for device memory");
    return absl::OkStatus();
  }
  void Send(int peer, Tag tag, const void* data, size_t bytes, Done done) override {
    whole_->Send(peer, tag, data, bytes, std::move(done));
  }
  void Receive(int peer, Tag tag, void* data, size_t bytes, Done done) override {
    whole_->Receive(peer, tag, data, bytes, std::move(done));
  }
  void Abort(absl::Status status) override { whole_->Abort(std::move(status)); }
  Transport* ForDeviceMemory(const std::vector<int>& devices) override {
    return whole_->ForDeviceMemory(devices);
  }
  ReferenceTransport* ByReference(int peer) override { return whole_->ByReference(peer); }
  absl::Status OpenCollectives(const std::vector<std::vector<int>>& lists,
                               absl::Time deadline) override {
    return whole_->OpenCollectives(lists, deadline);
  }
  bool reduces() const override { return whole_->reduces(); }
  void RunCollective(Collective collective, const std::vector<int>& devices, Tag tag, void* data,
                     size_t count, Element element, Done done) override {
    whole_->RunCollective(collective, devices, tag, data, count, element, std::move(done));
  }

 private:
  const std::unique_ptr<Transport> whole_;
};

}  // namespace

std::unique_ptr<Transport> RequireDeviceMemory(std::unique_ptr<Transport> whole) {
  return std::make_unique<DeviceMemoryTransport>(std::move(whole));
}

}  // namespace stagewright::testing
