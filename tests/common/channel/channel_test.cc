#include "common/channel/channel.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

// Waits for connections on a port of loopback.
class Listener {
 public:
  Listener() {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&at), size), 0);
    EXPECT_EQ(listen(fd_, 8), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);
  }
  ~Listener() { close(fd_); }
  int fd() const { return fd_; }
  int port() const { return port_; }

 private:
  const int fd_ = socket(AF_INET, SOCK_STREAM, 0);
  int port_ = 0;
};

TEST(Channel, AsksNoProxyWhereItIsNotEncrypted) {
  const Listener proxy;
  setenv("http_proxy", absl::StrCat("http://127.0.0.1:", proxy.port()).c_str(), 1);
  // On Linux, 0.0.0.0 is this machine, which IsLoopback does not know.
  for (const char* const host : {"127.0.0.1", "localhost", "0.0.0.0"}) {
    const Listener planner;
    const auto channel =
        OpenChannel(absl::StrCat(host, ":", planner.port()), {{}, "", /*insecure=*/true}, {});
    ASSERT_TRUE(channel.ok()) << channel.status();
    (*channel)->GetState(/*try_to_connect=*/true);
    pollfd either[] = {{planner.fd(), POLLIN, 0}, {proxy.fd(), POLLIN, 0}};
    EXPECT_EQ(poll(either, 2, /*milliseconds=*/60000), 1);
    EXPECT_NE(either[0].revents, 0) << host;
    EXPECT_EQ(either[1].revents, 0) << host;
  }
  unsetenv("http_proxy");
}

}  // namespace
}  // namespace stagewright
