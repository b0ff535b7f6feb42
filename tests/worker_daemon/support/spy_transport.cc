#include "tests/worker_daemon/support/spy_transport.h"

#include <ATen/ATen.h>
#include <time.h>

#include "common/base/status.h"
#include "worker_daemon/transport/local/local_transport.h"
#include "worker_daemon/transport/reference_transport.h"

namespace stagewright::testing {
namespace {

Nanos Now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + Nanos(time.tv_nsec);
}

class SpyTransport : public Transport, public ReferenceTransport {
 public:
  SpyTransport(std::unique_ptr<Transport> inner, SpyLog& log, bool by_reference)
      : inner_(std::move(inner)), log_(log), by_reference_(by_reference) {}

  int device() const override { return inner_->device(); }
  std::string Address() const override { return inner_->Address(); }
  absl::Status Connect(const std::vector<Peer>& peers, absl::Time deadline) override {
    return inner_->Connect(peers, deadline);
  }
  void Send(int peer, Tag tag, const void* data, size_t bytes, Done done) override {
    log_.CountBytes();
    inner_->Send(peer, tag, data, bytes, std::move(done));
  }
  void Receive(int peer, Tag tag, void* data, size_t bytes, Done done) override {
    log_.Add(SeenReceive{device(), tag, Now(), data, bytes});
    inner_->Receive(peer, tag, data, bytes, std::move(done));
  }
  void Abort(absl::Status status) override { inner_->Abort(std::move(status)); }
  ReferenceTransport* ByReference(int peer) override {
    return by_reference_ && inner_->ByReference(peer) != nullptr ? this : nullptr;
  }

  void SendObject(int peer, Tag tag, Object object, Done done) override {
    const auto message = std::static_pointer_cast<const TensorMessage>(object);
    SeenMessage seen{device(), peer, tag, {}, nullptr, {}};
    for (const at::Tensor& tensor : message->tensors)
      seen.data.push_back(tensor.defined() ? tensor.data_ptr() : nullptr);
    if (log_.keeps_messages()) {
      seen.message = message;
      for (const at::Tensor& tensor : message->tensors)
        seen.copies.push_back(tensor.defined() ? tensor.clone() : tensor);
    }
    log_.Add(std::move(seen));
    inner_->ByReference(peer)->SendObject(peer, tag, std::move(object), std::move(done));
  }
  void ReceiveObject(int peer, Tag tag, Received done) override {
    log_.Add(SeenReceive{device(), tag, Now(), nullptr, 0});
    inner_->ByReference(peer)->ReceiveObject(peer, tag, std::move(done));
  }

 private:
  std::unique_ptr<Transport> inner_;
  SpyLog& log_;
  const bool by_reference_;
};

}  // namespace

void SpyLog::Add(SeenMessage message) {
  absl::MutexLock lock(&mutex_);
  messages_.push_back(std::move(message));
}

void SpyLog::Add(SeenReceive receive) {
  absl::MutexLock lock(&mutex_);
  receives_.push_back(receive);
}

void SpyLog::CountBytes() {
  absl::MutexLock lock(&mutex_);
  ++byte_messages_;
}

std::vector<SeenMessage> SpyLog::messages() const {
  absl::MutexLock lock(&mutex_);
  return messages_;
}

std::vector<SeenReceive> SpyLog::receives() const {
  absl::MutexLock lock(&mutex_);
  return receives_;
}

int SpyLog::byte_messages() const {
  absl::MutexLock lock(&mutex_);
  return byte_messages_;
}

TransportFactory SpyOn(SpyLog& log, bool by_reference) {
  return [&log, by_reference](
             const TransportIdentity& identity) -> absl::StatusOr<std::unique_ptr<Transport>> {
    ASSIGN_OR_RETURN(std::unique_ptr<Transport> local, LocalTransport::Create(identity));
    return std::make_unique<SpyTransport>(std::move(local), log, by_reference);
  };
}

}  // namespace stagewright::testing
