#include "worker_daemon/transport/tcp_door.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace stagewright {
namespace {

// The port of a socket that listens for TCP, as it is sent; empty for all else.
std::string PortOf(int fd) {
  int listens = 0;
  socklen_t length = sizeof(listens);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) return "";
  sockaddr_storage address = {};
  length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "";
  in_port_t port = 0;
  if (address.ss_family == AF_INET) {
    port = reinterpret_cast<const sockaddr_in*>(&address)->sin_port;
  } else if (address.ss_family == AF_INET6) {
    port = reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port;
  } else {
    return "";
  }
  std::string bytes(sizeof(port), '\0');
  std::memcpy(bytes.data(), &port, sizeof(port));
  return bytes;
}

}  // namespace

std::set<TcpDoor::Socket> TcpDoor::Listening() {
  std::set<Socket> listening;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &fd)) continue;
    if (std::string port = PortOf(fd); !port.empty()) listening.insert({fd, std::move(port)});
  }
  return listening;
}

TcpDoor::TcpDoor(const std::set<Socket>& before, absl::string_view address) {
  for (const Socket& socket : Listening()) {
    if (!before.contains(socket) && absl::StrContains(address, socket.port))
      sockets_.push_back(socket);
  }
}

void TcpDoor::Filter(bool closed) const {
  sock_filter nothing = {BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program = {1, &nothing};
  for (const Socket& socket : sockets_) {
    if (PortOf(socket.fd) != socket.port) continue;  // UCX has closed it.
    setsockopt(socket.fd, SOL_SOCKET, closed ? SO_ATTACH_FILTER : SO_DETACH_FILTER, &program,
               sizeof(program));
  }
}

}  // namespace stagewright
