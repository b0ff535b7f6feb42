#include "common/channel/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace stagewright {
namespace {

constexpr absl::string_view kGrpcSchemes[] = {
    "dns:", "ipv4:", "ipv6:", "unix:", "unix-abstract:", "vsock:"};

// Without the port and the brackets of IPv6.
absl::string_view HostOf(absl::string_view address) {
  if (absl::StartsWith(address, "[")) return address.substr(1, address.find(']') - 1);
  return address.substr(0, address.rfind(':'));
}

}  // namespace

absl::Status CheckAddress(absl::string_view flag, absl::string_view address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " \"", address, "\": expected HOST:PORT with a port from 0 to 65535"));
  }
  return absl::OkStatus();
}

absl::Status CheckTarget(absl::string_view flag, absl::string_view address) {
  if (std::any_of(std::begin(kGrpcSchemes), std::end(kGrpcSchemes),
                  [&](absl::string_view scheme) { return absl::StartsWith(address, scheme); }))
    return absl::OkStatus();
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon != absl::string_view::npos && colon > 0 && !absl::StrContains(address, '/') &&
      absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 1 && port <= 65535)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " \"", address, "\": expected HOST:PORT with a port from 1 to 65535"));
}

bool IsLoopback(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) return true;
  if (absl::ConsumePrefix(&address, "ipv4:") || absl::ConsumePrefix(&address, "ipv6:")) {
    const std::vector<absl::string_view> all = absl::StrSplit(address, ',');
    return std::all_of(all.begin(), all.end(), IsLoopback);
  }
  const std::string host(HostOf(address));
  if (absl::EqualsIgnoreCase(absl::StripSuffix(host, "."), "localhost")) return true;
  in_addr four = {};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  in6_addr six = {};
  return inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six) != 0;
}

bool IsWildcard(absl::string_view address) {
  const std::string host(HostOf(address));
  if (host.empty()) return true;
  in_addr four = {};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return four.s_addr == htonl(INADDR_ANY);
  in6_addr six = {};
  return inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_UNSPECIFIED(&six) != 0;
}

}  // namespace stagewright
