#include "worker_daemon/transport/tcp_door.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

// A socket of the kernel's choice of port on loopback.
class Listener {
 public:
  Listener() {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address_);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address_), length), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address_), &length), 0);
  }
  ~Listener() { close(fd_); }

  int fd() const { return fd_; }
  // The two bytes of the port among others.
  std::string Named() const {
    std::string bytes(2, '\0');
    std::memcpy(bytes.data(), &address_.sin_port, 2);
    return absl::StrCat("address ", bytes, " of a worker");
  }
  // A connection, -1 if none comes about soon.
  int Connect() const {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    connect(fd, reinterpret_cast<const sockaddr*>(&address_), sizeof(address_));
    pollfd connected = {fd, POLLOUT, 0};
    poll(&connected, 1, /*timeout=*/200);
    if ((connected.revents & (POLLOUT | POLLERR)) == POLLOUT) return fd;
    close(fd);
    return -1;
  }

 private:
  const int fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address_ = {};
};

TEST(TcpDoorTest, LetsNobodyInWhileItIsClosedAndKeepsThoseWhoAreIn) {
  const auto before = TcpDoor::Listening();
  const Listener listener;
  const TcpDoor door(before, listener.Named());
  ASSERT_EQ(door.size(), 1u);
  const int early = listener.Connect();
  ASSERT_GE(early, 0);
  door.Close();
  EXPECT_EQ(listener.Connect(), -1);
  const int accepted = accept(listener.fd(), nullptr, nullptr);
  char byte = 'x';
  EXPECT_EQ(send(early, &byte, 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(recv(accepted, &byte, 1, 0), 1);
  door.Open();
  const int late = listener.Connect();
  EXPECT_GE(late, 0);
  for (const int fd : {early, accepted, late}) close(fd);
}

TEST(TcpDoorTest, LeavesOtherSocketsAlone) {
  const Listener old;
  const auto before = TcpDoor::Listening();
  EXPECT_EQ(std::count_if(before.begin(), before.end(),
                          [&](const auto& socket) { return socket.fd == old.fd(); }),
            1);
  const Listener other;
  EXPECT_EQ(TcpDoor(before, "no port").size(), 0u);
  EXPECT_EQ(TcpDoor(before, old.Named()).size(), 0u);
  EXPECT_EQ(TcpDoor().size(), 0u);
}

TEST(TcpDoorTest, FindsASocketWithTheDescriptorOfOneThatWasClosedMeanwhile) {
  auto old = std::make_unique<Listener>();
  const auto before = TcpDoor::Listening();
  const int fd = old->fd();
  old.reset();
  const Listener next;
  ASSERT_EQ(next.fd(), fd);
  EXPECT_EQ(TcpDoor(before, next.Named()).size(), 1u);
}

TEST(TcpDoorTest, ASocketThatWasClosedIsNobodysDoor) {
  const auto before = TcpDoor::Listening();
  auto closed = std::make_unique<Listener>();
  const TcpDoor door(before, closed->Named());
  const int fd = closed->fd();
  closed.reset();
  const Listener next;  // It may have the descriptor of the one before.
  door.Close();
  const int connection = next.Connect();
  EXPECT_GE(connection, 0) << fd << " is " << next.fd();
  close(connection);
}

}  // namespace
}  // namespace stagewright
