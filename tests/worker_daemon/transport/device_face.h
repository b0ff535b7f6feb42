// The transport for device memory of a whole transport, so that suites can treat it like any other.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright::testing {

class DeviceFace : public Transport {
 public:
  explicit DeviceFace(std::unique_ptr<Transport> whole) : whole_(std::move(whole)) {}

  int device() const override { return whole_->device(); }
  std::string Address() const override { return whole_->Address(); }
  absl::Status Connect(const std::vector<Peer>& peers, absl::Time deadline) override {
    RETURN_IF_ERROR(whole_->Connect(peers, deadline));
    std::vector<int> devices = {device()};
    for (const Peer& peer : peers) devices.push_back(peer.device);
    face_ = whole_->ForDeviceMemory(devices);
    if (face_ == nullptr) return absl::InternalError("there is no way for device memory");
    return absl::OkStatus();
  }
  void Send(int peer, Tag tag, const void* data, size_t bytes, Done done) override {
    face_->Send(peer, tag, data, bytes, std::move(done));
  }
  void Receive(int peer, Tag tag, void* data, size_t bytes, Done done) override {
    face_->Receive(peer, tag, data, bytes, std::move(done));
  }
  void Abort(absl::Status status) override {
    (face_ == nullptr ? whole_.get() : face_)->Abort(std::move(status));
  }
  absl::Status OpenCollectives(const std::vector<std::vector<int>>& lists,
                               absl::Time deadline) override {
    return whole_->OpenCollectives(lists, deadline);
  }
  bool reduces() const override { return face_ != nullptr && face_->reduces(); }
  void RunCollective(Collective collective, const std::vector<int>& devices, Tag tag, void* data,
                     size_t count, Element element, Done done) override {
    face_->RunCollective(collective, devices, tag, data, count, element, std::move(done));
  }

 protected:
  Transport& face() { return *face_; }

 private:
  const std::unique_ptr<Transport> whole_;
  Transport* face_ = nullptr;
};

}  // namespace stagewright::testing
