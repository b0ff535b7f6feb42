#include "worker_daemon/transport/identity.h"

#include "absl/strings/str_cat.h"
#include "common/base/one_line.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {
namespace {

constexpr absl::string_view kMagic = "SWT1";

void AppendInteger(uint64_t value, std::string* out) {
  for (int byte = 0; byte < 8; ++byte) out->push_back(static_cast<char>(value >> (8 * byte)));
}

bool ConsumeInteger(absl::string_view* in, uint64_t* value) {
  if (in->size() < 8) return false;
  *value = 0;
  for (int byte = 0; byte < 8; ++byte) {
    *value |= static_cast<uint64_t>(static_cast<unsigned char>((*in)[byte])) << (8 * byte);
  }
  in->remove_prefix(8);
  return true;
}

// FNV-1a. Against damage, not against malice: UCX does not check an address that it is given.
uint64_t Fingerprint(absl::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash;
}

bool HasFingerprint(absl::string_view bytes) {
  absl::string_view end = bytes.substr(bytes.size() - 8);
  uint64_t fingerprint = 0;
  ConsumeInteger(&end, &fingerprint);
  return fingerprint == Fingerprint(bytes.substr(0, bytes.size() - 8));
}

}  // namespace

std::string ToString(const TransportIdentity& identity) {
  return absl::StrCat("device ", identity.device, " of job ", identity.job, ", generation ",
                      identity.generation);
}

absl::Status CheckIdentity(const TransportIdentity& identity) {
  if (identity.device < 0 || identity.device > Transport::kMaxDevice) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", identity.device, " is not in 0..", Transport::kMaxDevice));
  }
  return absl::OkStatus();
}

void AppendString(absl::string_view value, std::string* out) {
  AppendInteger(value.size(), out);
  out->append(value.data(), value.size());
}

bool ConsumeString(absl::string_view* in, std::string* value) {
  uint64_t size = 0;
  if (!ConsumeInteger(in, &size) || size > in->size()) return false;
  value->assign(in->data(), size);
  in->remove_prefix(size);
  return true;
}

std::string EncodeAddress(const TransportAddress& address) {
  std::string out(kMagic);
  AppendString(address.scheme, &out);
  AppendString(address.owner.job, &out);
  AppendInteger(address.owner.generation, &out);
  AppendInteger(static_cast<uint64_t>(address.owner.device), &out);
  AppendString(address.payload, &out);
  AppendInteger(Fingerprint(out), &out);
  return out;
}

absl::StatusOr<TransportAddress> DecodeAddress(absl::string_view scheme, absl::string_view bytes) {
  TransportAddress address;
  uint64_t device = 0;
  const bool is_address = bytes.size() >= kMagic.size() + 8 &&
                          bytes.substr(0, kMagic.size()) == kMagic && HasFingerprint(bytes);
  if (is_address) {
    bytes.remove_prefix(kMagic.size());
    bytes.remove_suffix(8);
  }
  if (!is_address || !ConsumeString(&bytes, &address.scheme) ||
      !ConsumeString(&bytes, &address.owner.job) ||
      !ConsumeInteger(&bytes, &address.owner.generation) || !ConsumeInteger(&bytes, &device) ||
      device > Transport::kMaxDevice || !ConsumeString(&bytes, &address.payload) ||
      !bytes.empty()) {
    return absl::InvalidArgumentError("not a transport address");
  }
  address.owner.device = static_cast<int>(device);
  if (address.scheme != scheme) {
    return OneLine(absl::InvalidArgumentError(absl::StrCat(
        "an address for the ", address.scheme, " transport, not for the ", scheme, " one")));
  }
  return address;
}

absl::StatusOr<TransportAddress> DecodePeerAddress(absl::string_view scheme,
                                                   const TransportIdentity& self, int device,
                                                   absl::string_view bytes) {
  if (device == self.device) {
    return absl::InvalidArgumentError(absl::StrCat("device ", device, " cannot connect to itself"));
  }
  absl::StatusOr<TransportAddress> address = DecodeAddress(scheme, bytes);
  if (!address.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("address of device ", device, ": ", address.status().message()));
  }
  const TransportIdentity expected{self.job, self.generation, device};
  if (!(address->owner == expected)) {
    return OneLine(absl::InvalidArgumentError(absl::StrCat(
        "address of ", ToString(expected), " is in truth that of ", ToString(address->owner))));
  }
  return address;
}

}  // namespace stagewright
