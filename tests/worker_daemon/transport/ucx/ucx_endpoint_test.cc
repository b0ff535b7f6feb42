#include "worker_daemon/transport/ucx/ucx_endpoint.h"

#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/worker_daemon/transport/ucx/ucx_workers.h"
#include "worker_daemon/transport/tcp_door.h"

// What happens before this process next calls `send`, as UCX does once it has connected.
std::function<void()> before_send;

// Stands in for that of the C library, also where UCX calls it.
extern "C" ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  if (before_send != nullptr) std::exchange(before_send, nullptr)();
  return sendto(fd, data, bytes, flags, nullptr, 0);
}

namespace stagewright::testing {
namespace {

// The ports of a worker that has ended, kept open: they take connections that nobody serves.
class IdlePorts {
 public:
  IdlePorts() {
    const auto before = TcpDoor::Listening();
    const auto worker = MakeUcxWorker("tcp,self");
    address_ = worker->address();
    for (const TcpDoor::Socket& socket : TcpDoor::Listening()) {
      if (!before.contains(socket)) fds_.push_back(dup(socket.fd));
    }
  }
  ~IdlePorts() { Close(); }

  const std::string& address() const { return address_; }

  // Breaks connections, and refuses more.
  void Close() {
    for (const int fd : std::exchange(fds_, {})) close(fd);
  }

 private:
  std::string address_;
  std::vector<int> fds_;
};

TEST(UcxEndpointTest, KnowsWhetherItGoesOverTcp) {
  for (const bool tcp : {false, true}) {
    const std::string tls = tcp ? "tcp,self" : "posix,self";
    const auto peer = MakeUcxWorker(tls);
    const auto worker = MakeUcxWorker(tls);
    UcxEndpoint endpoint;
    EXPECT_FALSE(endpoint.is_open());
    ASSERT_EQ(endpoint.Open(*worker, peer->address(), [](ucs_status_t) {}), UCS_OK);
    EXPECT_TRUE(endpoint.is_open());
    EXPECT_EQ(endpoint.over_tcp(), tcp);
    endpoint.Close();
    EXPECT_FALSE(endpoint.is_open());
    EXPECT_EQ(endpoint.get(), nullptr);
  }
}

TEST(UcxEndpointTest, TellsThatTheConnectionBroke) {
  auto peer = MakeUcxWorker("tcp,self");
  const auto worker = MakeUcxWorker("tcp,self");
  ucs_status_t error = UCS_OK;
  UcxEndpoint endpoint;
  ASSERT_EQ(endpoint.Open(*worker, peer->address(), [&](ucs_status_t status) { error = status; }),
            UCS_OK);
  char byte = 'a';
  ucp_request_param_t param = {};
  ucs_status_ptr_t request = ucp_tag_send_nbx(endpoint.get(), &byte, 1, 1, &param);
  const auto sent = [&] {
    return !UCS_PTR_IS_PTR(request) || ucp_request_check_status(request) != UCS_INPROGRESS;
  };
  ASSERT_TRUE(StepUntil([&] { Progress({worker.get(), peer.get()}); }, sent));
  if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  peer.reset();
  EXPECT_TRUE(StepUntil([&] { Progress({worker.get()}); }, [&] { return error != UCS_OK; }));
  endpoint.Close();
}

TEST(UcxEndpointTest, OpensWithoutWaitingForThePeer) {
  const auto peer = MakeUcxWorker("tcp,self");
  const auto worker = MakeUcxWorker("tcp,self");
  peer->door().Close();  // Like a host that is silent.
  UcxEndpoint endpoint;
  const absl::Time start = absl::Now();
  EXPECT_EQ(endpoint.Open(*worker, peer->address(), [](ucs_status_t) {}), UCS_OK);
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  endpoint.Close();
}

TEST(UcxEndpointTest, TellsThatThePeerEndedWhenItWasJustConnected) {
  IdlePorts peer;
  const auto worker = MakeUcxWorker("tcp,self");
  ucs_status_t error = UCS_OK;
  UcxEndpoint endpoint;
  before_send = [&] { peer.Close(); };
  ASSERT_EQ(endpoint.Open(*worker, peer.address(), [&](ucs_status_t status) { error = status; }),
            UCS_OK);
  EXPECT_TRUE(StepUntil([&] { Progress({worker.get()}); }, [&] { return error != UCS_OK; }));
  EXPECT_EQ(before_send, nullptr);
  endpoint.Close();
}

}  // namespace
}  // namespace stagewright::testing
