// Who a transport is, as it stands in every address.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stagewright {

// A device in one generation of a job. A job that restarts gets a new generation, and transports
// of different generations never exchange a byte.
struct TransportIdentity {
  std::string job;
  uint64_t generation = 0;
  int device = 0;

  friend bool operator==(const TransportIdentity&, const TransportIdentity&) = default;
};

// "device 3 of job lm, generation 2".
std::string ToString(const TransportIdentity& identity);

// Whether `identity` can be the identity of a transport; INVALID_ARGUMENT if not.
absl::Status CheckIdentity(const TransportIdentity& identity);

// An address: the identity of its owner and bytes that only the implementation named by `scheme`
// understands.
struct TransportAddress {
  std::string scheme;  // "local", "ucx", "routing"
  TransportIdentity owner;
  std::string payload;
};

std::string EncodeAddress(const TransportAddress& address);

// The address in `bytes`, if it is one of `scheme`. INVALID_ARGUMENT otherwise.
absl::StatusOr<TransportAddress> DecodeAddress(absl::string_view scheme, absl::string_view bytes);

// DecodeAddress, and checks that the owner is `device` in the job and generation of `self`, and is
// not `self`. Errors name what differs.
absl::StatusOr<TransportAddress> DecodePeerAddress(absl::string_view scheme,
                                                   const TransportIdentity& self, int device,
                                                   absl::string_view bytes);

// A string and the rest, as EncodeAddress lays strings out: an 8-byte little-endian length first.
void AppendString(absl::string_view value, std::string* out);
bool ConsumeString(absl::string_view* in, std::string* value);

}  // namespace stagewright
