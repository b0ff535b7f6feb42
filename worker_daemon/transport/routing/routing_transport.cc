#include "worker_daemon/transport/routing/routing_transport.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "worker_daemon/transport/arranged/arranged_transport.h"
#if STAGEWRIGHT_HAVE_UCX
#include "worker_daemon/transport/reference_transport.h"
#include "worker_daemon/transport/ucx/ucx_transport.h"
#endif

namespace stagewright {

absl::StatusOr<std::unique_ptr<RoutingTransport>> RoutingTransport::Create(
    const TransportIdentity& identity, RoutingOptions options) {
  ASSIGN_OR_RETURN(std::unique_ptr<LocalTransport> local, LocalTransport::Create(identity));
  std::unique_ptr<Transport> ucx;
#if STAGEWRIGHT_HAVE_UCX
  ASSIGN_OR_RETURN(ucx, UcxTransport::Create(identity, options.ucx));
#endif
  return std::unique_ptr<RoutingTransport>(
      new RoutingTransport(identity, std::move(options), std::move(local), std::move(ucx)));
}

RoutingTransport::RoutingTransport(TransportIdentity identity, RoutingOptions options,
                                   std::unique_ptr<LocalTransport> local,
                                   std::unique_ptr<Transport> ucx)
    : identity_(std::move(identity)),
      accelerator_(options.mover == nullptr ? "" : options.accelerator),
      local_(std::move(local)),
      ucx_(std::move(ucx)) {
  if (!accelerator_.empty()) {
    device_ = std::make_unique<ArrangedTransport>(identity_, this, std::move(options.mover));
  }
}

RoutingTransport::~RoutingTransport() { Abort(absl::CancelledError("the transport was closed")); }

std::string RoutingTransport::Address() const {
  TransportAddress address{"routing", identity_, ""};
  AppendString(local_->Address(), &address.payload);
  AppendString(ucx_ == nullptr ? "" : ucx_->Address(), &address.payload);
  AppendString(accelerator_, &address.payload);
  return EncodeAddress(address);
}

namespace {

// What an address holds besides the identity.
struct Payload {
  std::string local, ucx, accelerator;
};

bool Parse(absl::string_view bytes, Payload* payload) {
  return ConsumeString(&bytes, &payload->local) && ConsumeString(&bytes, &payload->ucx) &&
         ConsumeString(&bytes, &payload->accelerator) && bytes.empty();
}

}  // namespace

bool RoutingTransport::HasAccelerator(absl::string_view address) {
  const auto decoded = DecodeAddress("routing", address);
  Payload payload;
  return decoded.ok() && Parse(decoded->payload, &payload) && !payload.accelerator.empty();
}

absl::Status RoutingTransport::Connect(const std::vector<Peer>& peers, absl::Time deadline) {
  std::map<int, Transport*> routes;
  std::vector<Peer> here;
  std::vector<Peer> elsewhere;
  std::vector<Peer> accelerated;
  std::set<std::string> accelerators = {accelerator_};
  for (const Peer& peer : peers) {
    ASSIGN_OR_RETURN(const TransportAddress address,
                     DecodePeerAddress("routing", identity_, peer.device, peer.address));
    Payload payload;
    if (!Parse(address.payload, &payload)) {
      return absl::InvalidArgumentError(
          absl::StrCat("address of device ", peer.device, ": malformed"));
    }
    auto& [local, ucx, accelerator] = payload;
    if (LocalTransport::IsInThisProcess(local)) {
      here.push_back({peer.device, std::move(local)});
      routes[peer.device] = local_.get();
    } else if (ucx_ == nullptr || ucx.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "device ", peer.device, " is in another process, and ",
          ucx_ == nullptr ? "this worker" : "its worker", " was built without UCX to reach it"));
    } else {
      elsewhere.push_back({peer.device, std::move(ucx)});
      routes[peer.device] = ucx_.get();
    }
    if (!accelerator.empty()) {
      accelerated.push_back({peer.device, "", peer.talks});
      accelerators.insert(std::move(accelerator));
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    routes_ = std::move(routes);
  }
  elsewhere_ = !elsewhere.empty();
  RETURN_IF_ERROR(local_->Connect(here, deadline));
  if (ucx_ != nullptr) RETURN_IF_ERROR(ucx_->Connect(elsewhere, deadline));
  const bool distinct = accelerators.size() == accelerated.size() + 1;
  if (device_ == nullptr || accelerated.empty() || !distinct) return absl::OkStatus();
  return device_->Connect(accelerated, deadline);
}

absl::Status RoutingTransport::OpenCollectives(const std::vector<std::vector<int>>& lists,
                                               absl::Time deadline) {
  if (device_ == nullptr || !device_->connected_to(identity_.device)) return absl::OkStatus();
  std::vector<std::vector<int>> inside;
  for (const std::vector<int>& list : lists) {
    if (std::all_of(list.begin(), list.end(), [&](int d) { return device_->connected_to(d); }))
      inside.push_back(list);
  }
  return device_->OpenCollectives(inside, deadline);
}

// A device without a route gets the error of a transport that does not know it either.
Transport& RoutingTransport::Route(int peer) {
  absl::MutexLock lock(&mutex_);
  const auto route = routes_.find(peer);
  return route == routes_.end() ? *local_ : *route->second;
}

void RoutingTransport::Send(int peer, Tag tag, const void* data, size_t bytes, Done done) {
  Route(peer).Send(peer, tag, data, bytes, std::move(done));
}

void RoutingTransport::Receive(int peer, Tag tag, void* data, size_t bytes, Done done) {
  Route(peer).Receive(peer, tag, data, bytes, std::move(done));
}

void RoutingTransport::Hold() {
  if (ucx_ != nullptr) ucx_->Hold();
}

void RoutingTransport::Release() {
  if (ucx_ != nullptr) ucx_->Release();
}

void RoutingTransport::Help(absl::FunctionRef<bool()> ready) {
  if (elsewhere_) return ucx_->Help(ready);
  Transport::Help(ready);
}

void RoutingTransport::Abort(absl::Status status) {
  local_->Abort(status);
  if (ucx_ != nullptr) ucx_->Abort(status);
  if (device_ != nullptr) device_->Abort(std::move(status));
}

Transport* RoutingTransport::ForDeviceMemory(const std::vector<int>& devices) {
  if (device_ == nullptr) return nullptr;
  for (const int device : devices) {
    if (!device_->connected_to(device)) return nullptr;
  }
  return device_.get();
}

ReferenceTransport* RoutingTransport::ByReference(int peer) { return local_->ByReference(peer); }

}  // namespace stagewright
