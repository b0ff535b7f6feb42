#include "worker_daemon/transport/arranged/posted_operations.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker_daemon/transport/arranged/control_link.h"

namespace stagewright {
namespace {

bool Reduces(const ArrangedOperation& operation) {
  return operation.part.kind == MoverPart::Kind::kReduce;
}

absl::Status NotConnected(int self, int device) {
  return absl::InvalidArgumentError(
      absl::StrCat("device ", self, " is not connected to device ", device));
}

absl::Status CheckReduction(const std::vector<int>& devices, int self,
                            const std::vector<int>& group,
                            const std::set<std::vector<int>>& lists) {
  const std::set<int> distinct(devices.begin(), devices.end());
  if (distinct.size() != devices.size() || !distinct.contains(self)) {
    return absl::InvalidArgumentError(
        absl::StrCat("all-reduce: devices ", absl::StrJoin(devices, ", "), " on device ", self));
  }
  for (const int device : devices) {
    if (!std::binary_search(group.begin(), group.end(), device)) return NotConnected(self, device);
  }
  if (!lists.contains(devices)) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", self, ": collectives among devices ", absl::StrJoin(devices, ", "),
                     " were not opened"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOperation(const ArrangedOperation& operation, int self,
                            const std::vector<int>& group,
                            const std::set<std::vector<int>>& lists) {
  if (operation.tag.channel > Tag::kMaxChannel) {
    return absl::InvalidArgumentError(
        absl::StrCat("channel ", operation.tag.channel, " is above ", Tag::kMaxChannel));
  }
  if (Reduces(operation)) return CheckReduction(operation.part.devices, self, group, lists);
  const int peer = operation.part.peer;
  const bool known = peer != self && std::binary_search(group.begin(), group.end(), peer);
  return known ? absl::OkStatus() : NotConnected(self, peer);
}

TransferOffer OfferOf(const ArrangedOperation& operation, int self, uint64_t id) {
  const MoverPart& part = operation.part;
  TransferOffer offer;
  offer.kind = static_cast<TransferOffer::Kind>(part.kind);
  offer.device = self;
  offer.id = id;
  offer.peer = part.peer;
  offer.tag = operation.tag;
  offer.bytes = part.bytes;
  if (Reduces(operation)) {
    offer.group = Fingerprint(part.devices);
    offer.members = static_cast<uint32_t>(part.devices.size());
    offer.element = static_cast<uint32_t>(part.element);
  }
  return offer;
}

absl::Status MismatchOf(const ArrangedOperation& operation, int self, const TransferOrder& order) {
  const MoverPart& part = operation.part;
  if (Reduces(operation)) {
    return absl::InvalidArgumentError(absl::StrCat(
        ToString(operation.tag), ": all-reduce of ", part.bytes, " bytes on device ", self,
        ", of other bytes or elements on another (", order.offered, ", ", order.expected, ")"));
  }
  const bool sends = part.kind == MoverPart::Kind::kSend;
  return SizeMismatch(sends ? self : part.peer, sends ? part.peer : self, operation.tag,
                      order.offered, order.expected);
}

uint64_t PostedOperations::Add(ArrangedOperation operation) {
  operations_.emplace(next_id_, std::move(operation));
  return next_id_++;
}

const ArrangedOperation* PostedOperations::Find(uint64_t id) const {
  const auto found = operations_.find(id);
  return found == operations_.end() ? nullptr : &found->second;
}

Transport::Done PostedOperations::Remove(uint64_t id) {
  return std::move(operations_.extract(id).mapped().done);
}

std::vector<Transport::Done> PostedOperations::RemoveAll() {
  std::vector<Transport::Done> dones;
  for (auto& [id, operation] : operations_) dones.push_back(std::move(operation.done));
  operations_.clear();
  return dones;
}

void PostedOperations::Refuse(Transport::Done done, absl::Status status) {
  refused_.emplace_back(std::move(done), std::move(status));
}

}  // namespace stagewright
