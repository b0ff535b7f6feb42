#include "worker_daemon/transport/ucx/ucx_edges.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/clock/steady_now.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/stopwatch.h"
#include "tests/worker_daemon/transport/ucx/ucx_workers.h"
#include "worker_daemon/transport/unreached.h"

namespace stagewright::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kKey(GenerationKey::kBytes, 'k');

// Where this process listens for TCP, IPv4.
std::vector<sockaddr_in> OpenPorts() {
  std::set<std::string> sockets;  // "socket:[123]"
  for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    sockets.insert(std::filesystem::read_symlink(fd, closed).string());
  }
  std::vector<sockaddr_in> ports;
  std::ifstream table("/proc/self/net/tcp");
  for (std::string line; std::getline(table, line);) {
    const std::vector<std::string> fields =
        absl::StrSplit(line, absl::ByAnyChar(" :"), absl::SkipEmpty());
    const bool listens = fields.size() > 13 && fields[5] == "0A";
    if (!listens || !sockets.contains(absl::StrCat("socket:[", fields[13], "]"))) continue;
    sockaddr_in& port = ports.emplace_back();
    port.sin_family = AF_INET;
    port.sin_addr.s_addr = static_cast<uint32_t>(std::stoul(fields[1], nullptr, 16));
    port.sin_port = htons(static_cast<uint16_t>(std::stoul(fields[2], nullptr, 16)));
  }
  return ports;
}

// A connection to a port that sends `text`, if it can, and nothing more.
class SilentStranger {
 public:
  SilentStranger(const sockaddr_in& port, absl::string_view text)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&port), sizeof(port)) == 0 &&
                 send(fd_, text.data(), text.size(), MSG_NOSIGNAL) >= 0;
  }
  ~SilentStranger() { close(fd_); }
  bool connected() const { return connected_; }

 private:
  const int fd_;
  bool connected_ = false;
};

// A device and what its owner heard of its edges.
struct Device {
  explicit Device(int number, const std::string& tls = "posix,self",
                  const std::string& secret = kKey)
      : owned(MakeUcxWorker(tls)),
        key({"job", 1, number}, secret),
        control({"job", 1, number}, &key, owned.get()),
        transfers({"job", 1, number}, &key, owned.get(),
                  [this](int p) { return edges.FailureOf(p); }),
        edges(owned.get(), &key, &control, &transfers),
        worker(std::move(owned)) {}
  ~Device() {
    edges.CloseAll();
    control.StopListening();
  }

  void Connect(int peer, const UcxPeerAddress& address) {
    edges.Connect({{peer, address}}, [this](int device, absl::Status status) {
      reports.push_back({device, std::move(status)});
    });
  }
  void Step() {
    bool any = ucp_worker_progress(worker->get()) != 0;
    for (const UcxControlMessage& message : control.Take()) {
      edges.Handle(message);
      any = true;
    }
    any |= control.Listen();
    edges.Settle(!any);
    transfers.RunDones();
  }

  std::unique_ptr<UcxWorker> owned;
  const GenerationKey key;
  UcxControlLine control;
  UcxTransfers transfers;
  UcxEdges edges;
  std::vector<std::pair<int, absl::Status>> reports;
  std::unique_ptr<UcxWorker> worker;  // Last, so that it ends first.
};

class UcxEdgesTest : public ::testing::TestWithParam<std::string> {
 protected:
  void ConnectBoth() {
    one_.Connect(2, {two_.worker->address(), "", ""});
    two_.Connect(1, {one_.worker->address(), "", ""});
    ASSERT_TRUE(Both([&] { return !one_.reports.empty() && !two_.reports.empty(); }));
    EXPECT_EQ(one_.reports[0].second, absl::OkStatus());
    EXPECT_EQ(two_.reports[0].second, absl::OkStatus());
  }
  bool Both(const std::function<bool()>& done, absl::Duration patience = absl::Seconds(20)) {
    return StepUntil(
        [&] {
          one_.Step();
          two_.Step();
        },
        done, patience);
  }

  Device one_{1, GetParam()}, two_{2, GetParam()};
};

TEST_P(UcxEdgesTest, AreReadyOnceBothHaveGreeted) {
  one_.Connect(2, {two_.worker->address(), "", ""});
  EXPECT_FALSE(Both([&] { return !one_.reports.empty(); }, absl::Milliseconds(100)));
  two_.Connect(1, {one_.worker->address(), "", ""});
  ASSERT_TRUE(Both([&] { return !one_.reports.empty() && !two_.reports.empty(); }));
  EXPECT_EQ(one_.reports.at(0), std::make_pair(2, absl::OkStatus()));
  EXPECT_EQ(two_.reports.at(0), std::make_pair(1, absl::OkStatus()));
  EXPECT_LE(one_.edges.next_timer(), SteadyNow() + UcxEdges::kDoorOpen);
  EXPECT_EQ(one_.edges.Find(1), nullptr);
}

TEST_P(UcxEdgesTest, AByeFailsTheEdgeAtThePeerAndIsAnswered) {
  ConnectBoth();
  const absl::Time start = absl::Now();
  EXPECT_FALSE(one_.edges.MayEnd());
  one_.edges.Leave(absl::AbortedError("enough"));
  one_.edges.Leave(absl::AbortedError("again"));
  EXPECT_EQ(one_.edges.FailureOf(2), absl::AbortedError("enough"));
  EXPECT_GT(one_.edges.next_timer(), start + UcxEdges::kAnswer / 2);
  const testing::Stopwatch watch;
  ASSERT_TRUE(Both([&] { return one_.edges.MayEnd() && two_.edges.Find(1)->left; }));
  EXPECT_LT(watch.Elapsed(), absl::ToChronoMilliseconds(UcxEdges::kAnswer));
  EXPECT_EQ(two_.edges.FailureOf(1), absl::UnavailableError("device 1 has gone: enough"));
  EXPECT_TRUE(two_.edges.Find(1)->left);
  EXPECT_FALSE(two_.edges.MayEnd());
  EXPECT_EQ(one_.reports.size(), 1);
  EXPECT_EQ(two_.reports.size(), 1);
}

TEST_P(UcxEdgesTest, WaitsNoLongerThanASecondForAnswers) {
  ConnectBoth();
  one_.edges.Leave(absl::AbortedError("enough"));
  const absl::Time start = absl::Now();
  ASSERT_TRUE(StepUntil([&] { one_.Step(); }, [&] { return one_.edges.MayEnd(); }));
  EXPECT_GE(absl::Now() - start, UcxEdges::kAnswer / 2);
}

TEST_P(UcxEdgesTest, AByeBeforeConnectFailsConnect) {
  one_.Connect(2, {two_.worker->address(), "", ""});
  one_.edges.Leave(absl::AbortedError("enough"));
  EXPECT_EQ(one_.reports.at(0), std::make_pair(2, absl::AbortedError("enough")));
  EXPECT_FALSE(Both([] { return false; }, absl::Milliseconds(100)));
  two_.Connect(1, {one_.worker->address(), "", ""});
  EXPECT_EQ(two_.reports.at(0),
            std::make_pair(1, absl::UnavailableError("device 1 has gone: enough")));
}

TEST_P(UcxEdgesTest, ConnectAfterLeavingFails) {
  one_.edges.Leave(absl::AbortedError("enough"));
  one_.Connect(2, {two_.worker->address(), "", ""});
  EXPECT_EQ(one_.reports.at(0), std::make_pair(2, absl::AbortedError("enough")));
}

TEST_P(UcxEdgesTest, APeerThatIsNotReachedIsNamed) {
  const std::string address = MakeUcxWorker(GetParam())->address();  // Nobody is there any more.
  one_.Connect(2, {address, "", ""});
  ASSERT_TRUE(StepUntil([&] { one_.Step(); }, [&] { return !one_.reports.empty(); }));
  EXPECT_EQ(one_.reports[0].second.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(UnreachedOf(one_.reports[0].second), ElementsAre(2)) << one_.reports[0].second;
}

TEST_P(UcxEdgesTest, AWatchNoticesWhoGoesWithoutAWord) {
  auto life = LifeLine::Create();
  ASSERT_NE(life, nullptr);
  one_.Connect(2, {two_.worker->address(), "", life->name()});
  two_.Connect(1, {one_.worker->address(), "", ""});
  ASSERT_TRUE(Both([&] { return !one_.reports.empty(); }));
  EXPECT_EQ(one_.edges.end_fds().size(), 1);
  life.reset();
  ASSERT_TRUE(Both([&] { return !one_.edges.FailureOf(2).ok(); }));
  EXPECT_THAT(std::string(one_.edges.FailureOf(2).message()), HasSubstr("its transport ended"));
  EXPECT_TRUE(one_.edges.end_fds().empty());
}

// A stranger that calls itself device 2 is no device 2, whether it comes first or says good-bye.
TEST_P(UcxEdgesTest, WhoDoesNotHaveTheKeyIsNotHeard) {
  Device none{2, GetParam(), ""}, wrong{2, GetParam(), std::string(kKey.size(), 'w')};
  one_.Connect(2, {two_.worker->address(), "", ""});
  const auto all = [&] {
    for (Device* device : {&one_, &two_, &none, &wrong}) device->Step();
  };
  for (Device* stranger : {&none, &wrong}) stranger->Connect(1, {one_.worker->address(), "", ""});
  EXPECT_FALSE(StepUntil(
      all, [&] { return !one_.reports.empty(); }, absl::Milliseconds(100)));
  two_.Connect(1, {one_.worker->address(), "", ""});
  ASSERT_TRUE(Both([&] { return !one_.reports.empty() && !two_.reports.empty(); }));
  EXPECT_EQ(one_.reports.at(0), std::make_pair(2, absl::OkStatus()));
  EXPECT_EQ(two_.reports.at(0), std::make_pair(1, absl::OkStatus()));
  for (Device* stranger : {&none, &wrong}) stranger->edges.Leave(absl::AbortedError("enough"));
  EXPECT_FALSE(StepUntil(
      all, [&] { return !one_.edges.FailureOf(2).ok(); }, absl::Milliseconds(100)));
  EXPECT_EQ(wrong.reports.at(0), std::make_pair(1, absl::AbortedError("enough")));
}

// Who has recorded what device 2 once said, proofs and all, cannot answer what is asked now, nor
// keep device 2 from it.
TEST_P(UcxEdgesTest, ARecordedAnswerIsNone) {
  Device recorded{2, GetParam()};
  UcxEndpoint endpoint;
  ASSERT_EQ(endpoint.Open(*recorded.worker, one_.worker->address(), [](ucs_status_t) {}), UCS_OK);
  one_.Connect(2, {two_.worker->address(), "", ""});
  recorded.control.Send(endpoint.get(), 1, UcxControl::kHello, std::string(32, 'h'), [] {});
  recorded.control.Send(endpoint.get(), 1, UcxControl::kHelloAnswer, std::string(32, 'a'), [] {});
  const auto all = [&] {
    for (Device* device : {&one_, &two_, &recorded}) device->Step();
  };
  EXPECT_FALSE(StepUntil(
      all, [&] { return !one_.reports.empty(); }, absl::Milliseconds(100)));
  EXPECT_TRUE(one_.edges.Find(2)->greeted);
  two_.Connect(1, {one_.worker->address(), "", ""});
  ASSERT_TRUE(Both([&] { return !one_.reports.empty() && !two_.reports.empty(); }));
  EXPECT_EQ(one_.reports.at(0), std::make_pair(2, absl::OkStatus()));
  EXPECT_EQ(two_.reports.at(0), std::make_pair(1, absl::OkStatus()));
  endpoint.Close();
}

TEST_P(UcxEdgesTest, WhoConnectsAndSaysNothingOrNonsenseHoldsNobodyUp) {
  std::vector<std::unique_ptr<SilentStranger>> strangers;
  for (const sockaddr_in& port : OpenPorts()) {
    for (const std::string& text :
         {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100, '\xff')}) {
      for (int i = 0; i < 20; ++i) {
        strangers.push_back(std::make_unique<SilentStranger>(port, text));
        ASSERT_TRUE(strangers.back()->connected());
      }
    }
  }
  EXPECT_EQ(strangers.empty(), GetParam() != "tcp,self");
  ConnectBoth();
}

// Whether a connection to the port comes about, which takes no time where it does.
bool CanConnect(const sockaddr_in& port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  connect(fd, reinterpret_cast<const sockaddr*>(&port), sizeof(port));
  pollfd connected = {fd, POLLOUT, 0};
  poll(&connected, 1, /*timeout=*/200);
  close(fd);
  return (connected.revents & (POLLOUT | POLLERR)) == POLLOUT;
}

TEST_P(UcxEdgesTest, NobodyIsLetInOnceAllPeersAre) {
  const std::vector<sockaddr_in> ports = OpenPorts();
  EXPECT_EQ(ports.empty(), GetParam() != "tcp,self");
  EXPECT_EQ(one_.worker->door().size() + two_.worker->door().size(), ports.size());
  EXPECT_TRUE(std::all_of(ports.begin(), ports.end(), CanConnect));
  ConnectBoth();
  EXPECT_TRUE(std::all_of(ports.begin(), ports.end(), CanConnect)) << "a late peer may still come";
  ASSERT_TRUE(Both([&] {
    return one_.edges.next_timer() == absl::InfiniteFuture() &&
           two_.edges.next_timer() == absl::InfiniteFuture();
  }));
  EXPECT_TRUE(std::none_of(ports.begin(), ports.end(), CanConnect));
  one_.edges.Leave(absl::AbortedError("enough"));  // It is heard: those who are in stay in.
  ASSERT_TRUE(Both([&] { return !two_.edges.Find(1)->failure.ok(); }));
  EXPECT_THAT(std::string(two_.edges.Find(1)->failure.message()), HasSubstr("enough"));
  ASSERT_TRUE(Both([&] { return one_.edges.MayEnd(); }));
}

TEST_P(UcxEdgesTest, WhoHasNoPeersLetsNobodyIn) {
  const std::vector<sockaddr_in> ports = OpenPorts();
  for (Device* device : {&one_, &two_}) {
    device->edges.Connect({}, [](int, const absl::Status&) {});
    device->edges.Settle(/*quiet=*/true);
  }
  EXPECT_TRUE(std::none_of(ports.begin(), ports.end(), CanConnect));
}

INSTANTIATE_TEST_SUITE_P(All, UcxEdgesTest, ::testing::Values("posix,self", "tcp,self"),
                         [](const auto& test) {
                           return test.param.substr(0, test.param.find(','));
                         });

}  // namespace
}  // namespace stagewright::testing
