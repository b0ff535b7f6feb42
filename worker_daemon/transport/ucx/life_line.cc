#include "worker_daemon/transport/ucx/life_line.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stagewright {
namespace {

// Fields of a name.
enum { kMachine = 0, kNamespace = 1, kSocket = 2, kFields = 3 };

constexpr int kMostWatches = 4096;  // One more is not told.

// Where abstract sockets are visible: "machine namespace".
std::string Place() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string machine;
  std::getline(file, machine);
  char space[64] = {};
  if (readlink("/proc/self/ns/net", space, sizeof(space) - 1) < 0) space[0] = '\0';
  return absl::StrCat(machine, " ", space);
}

// The address of an abstract socket, whose name begins with a zero byte.
std::pair<sockaddr_un, socklen_t> SocketAddress(absl::string_view socket) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(socket.size(), sizeof(address.sun_path) - 1);
  std::copy_n(socket.data(), length, address.sun_path + 1);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)};
}

int OpenSocket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

}  // namespace

std::unique_ptr<LifeLine> LifeLine::Create() {
  const int fd = OpenSocket();
  if (fd < 0) return nullptr;
  std::random_device random;
  const std::string socket =
      absl::StrCat("stagewright-", absl::Hex(random(), absl::kZeroPad8),
                   absl::Hex(random(), absl::kZeroPad8), absl::Hex(random(), absl::kZeroPad8));
  const auto [address, length] = SocketAddress(socket);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(fd, kMostWatches) != 0) {
    close(fd);
    return nullptr;
  }
  return std::unique_ptr<LifeLine>(new LifeLine(fd, absl::StrCat(Place(), " ", socket)));
}

LifeLine::LifeLine(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}

LifeLine::~LifeLine() { close(fd_); }

std::unique_ptr<LifeWatch> LifeWatch::Open(absl::string_view name) {
  const std::vector<std::string> fields = absl::StrSplit(name, ' ');
  if (fields.size() != kFields || fields[kMachine].empty() || fields[kNamespace].empty() ||
      absl::StrCat(fields[kMachine], " ", fields[kNamespace]) != Place()) {
    return nullptr;
  }
  const int fd = OpenSocket();
  if (fd < 0) return nullptr;
  const auto [address, length] = SocketAddress(fields[kSocket]);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0) {
    return std::unique_ptr<LifeWatch>(new LifeWatch(fd));
  }
  const bool ended = errno == ECONNREFUSED;
  close(fd);
  return ended ? std::unique_ptr<LifeWatch>(new LifeWatch(-1)) : nullptr;
}

LifeWatch::~LifeWatch() {
  if (fd_ >= 0) close(fd_);
}

bool LifeWatch::Ended() const {
  if (fd_ < 0) return true;
  pollfd poll_fd = {fd_, POLLIN, 0};
  return poll(&poll_fd, 1, 0) > 0;
}

}  // namespace stagewright
