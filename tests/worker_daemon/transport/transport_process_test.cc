// What the transports between processes must do when a process is slow, stops or dies.
#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/skips/run_tests.h"
#include "tests/worker_daemon/transport/peer_process.h"
#include "tests/worker_daemon/transport/worlds.h"
#include "worker_daemon/transport/all_reduce.h"
#include "worker_daemon/transport/completion.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

// Loss must be noticed within this time. The keep-alive of UCX takes one to two seconds; the rest
// is for a loaded machine.
constexpr absl::Duration kNoticed = absl::Seconds(8);

class ProcessConformanceTest : public ImplementationTest {
 protected:
  // Starts processes for devices 1.. and connects device 0, here, to all of them.
  void Start(std::vector<PeerRole> roles) {
    auto transport = GetParam().create({"test", 1, 0});
    ASSERT_EQ(transport.status(), absl::OkStatus());
    transport_ = *std::move(transport);
    std::vector<Transport::Peer> peers;
    for (size_t i = 0; i < roles.size(); ++i) {
      const int device = static_cast<int>(i) + 1;
      peers_.push_back(std::make_unique<PeerProcess>(GetParam().name, device, roles[i]));
      peers_.back()->Exchange(*transport_);
      peers.push_back({device, peers_.back()->address()});
    }
    ASSERT_EQ(transport_->Connect(peers, Soon()), absl::OkStatus());
  }

  void ExpectEcho(int device, uint32_t sequence, uint64_t bytes) {
    const std::vector<char> content = Pattern(bytes, sequence);
    std::vector<char> back(bytes);
    const Tag tag{1, Traffic::kState, sequence};
    Completion received;
    transport_->Receive(device, tag, back.data(), bytes, received.Callback());
    EXPECT_EQ(SendAndWait(*transport_, device, {0, Traffic::kState, sequence}, &bytes,
                          sizeof(bytes), Soon()),
              absl::OkStatus());
    EXPECT_EQ(SendAndWait(*transport_, device, tag, content.data(), bytes, Soon()),
              absl::OkStatus());
    EXPECT_EQ(received.Wait(*transport_, Soon()), absl::OkStatus());
    EXPECT_TRUE(back == content) << bytes;
  }

  static void ExpectLost(const absl::Status& status, const std::string& device) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(device));
  }

  std::unique_ptr<Transport> transport_;
  std::vector<std::unique_ptr<PeerProcess>> peers_;
};

// With peers that do not know each other.
class StrangersConformanceTest : public ProcessConformanceTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StrangersConformanceTest);

TEST_P(StrangersConformanceTest, ExchangesMessages) {
  Start({PeerRole::kEcho, PeerRole::kEcho});
  uint32_t sequence = 0;
  for (const uint64_t bytes : {0u, 1u, 1000u, 8192u, 100000u, 4u << 20, 64u << 20}) {
    ExpectEcho(1, sequence, bytes);
    ExpectEcho(2, sequence++, bytes);
  }
  transport_.reset();
  EXPECT_EQ(peers_[0]->Wait(), 0);
  EXPECT_EQ(peers_[1]->Wait(), 0);
}

TEST_P(StrangersConformanceTest, AKilledPeerFailsWhatIsPendingWithItOnly) {
  Start({PeerRole::kIdle, PeerRole::kEcho});
  std::vector<char> in(100);
  const std::vector<char> out(5000000);
  Completion receive;
  Completion send;
  transport_->Receive(1, {7}, in.data(), in.size(), receive.Callback());
  transport_->Send(1, {7}, out.data(), out.size(), send.Callback());
  ExpectEcho(2, 0, 100000);
  const absl::Time killed = absl::Now();
  peers_[0]->Signal(SIGKILL);
  ExpectLost(receive.Wait(*transport_, Soon()), "device 1");
  ExpectLost(send.Wait(*transport_, Soon()), "device 1");
  EXPECT_LT(absl::Now() - killed, kNoticed);
  ExpectLost(SendAndWait(*transport_, 1, {8}, out.data(), 10, Soon()), "device 1");
  ExpectLost(ReceiveAndWait(*transport_, 1, {8}, in.data(), 10, Soon()), "device 1");
  ExpectEcho(2, 1, 100000);
}

TEST_P(ProcessConformanceTest, APeerKilledWhileItSends) {
  for (int trial = 0; trial < 5; ++trial) {
    Start({PeerRole::kSource});
    std::vector<char> in(kSourceBytes);
    std::thread killer([&] {
      absl::SleepFor(absl::Milliseconds(3 + 17 * trial));
      peers_[0]->Signal(SIGKILL);
    });
    absl::Status status;
    for (uint32_t i = 0; status.ok(); ++i) {
      status =
          ReceiveAndWait(*transport_, 1, {2, Traffic::kState, i}, in.data(), in.size(), Soon());
      if (status.ok()) {
        EXPECT_TRUE(in == Pattern(kSourceBytes, 1));
      }
    }
    ExpectLost(status, "device 1");
    killer.join();
    std::fill(in.begin(), in.end(), 'z');
    transport_.reset();
    EXPECT_EQ(std::count(in.begin(), in.end(), 'z'), static_cast<ptrdiff_t>(kSourceBytes));
    peers_.clear();
  }
}

TEST_P(ProcessConformanceTest, APeerKilledWhileItReceives) {
  for (int trial = 0; trial < 5; ++trial) {
    Start({PeerRole::kEcho});
    const uint64_t bytes = size_t{256} << 20;
    const std::vector<char> out(bytes, 'a');
    ASSERT_EQ(SendAndWait(*transport_, 1, {0, Traffic::kState, 0}, &bytes, sizeof(bytes), Soon()),
              absl::OkStatus());
    Completion send;
    transport_->Send(1, {1, Traffic::kState, 0}, out.data(), bytes, send.Callback());
    absl::SleepFor(absl::Milliseconds(4 * trial));
    peers_[0]->Signal(SIGKILL);
    ExpectLost(send.Wait(*transport_, Soon()), "device 1");
    transport_.reset();
    peers_.clear();
  }
}

TEST_P(ProcessConformanceTest, AStoppedPeerIsSlowNotDead) {
  Start({PeerRole::kEcho});
  ExpectEcho(1, 0, 1000);
  peers_[0]->Signal(SIGSTOP);
  std::thread waker([&] {
    absl::SleepFor(absl::Seconds(4));
    peers_[0]->Signal(SIGCONT);
  });
  ExpectEcho(1, 1, 3000000);
  waker.join();
}

TEST_P(ProcessConformanceTest, AbortDoesNotWaitForAStoppedPeer) {
  Start({PeerRole::kIdle});
  peers_[0]->Signal(SIGSTOP);
  const std::vector<char> out(5000000);
  std::vector<char> in(10);
  Completion send;
  Completion receive;
  transport_->Send(1, {7}, out.data(), out.size(), send.Callback());
  transport_->Receive(1, {7}, in.data(), in.size(), receive.Callback());
  const absl::Time start = absl::Now();
  transport_->Abort(absl::AbortedError("enough"));
  EXPECT_EQ(receive.Wait(*transport_, Soon()), absl::AbortedError("enough"));
  EXPECT_EQ(send.Wait(*transport_, Soon()), absl::AbortedError("enough"));
  transport_.reset();
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
}

TEST_P(ProcessConformanceTest, AbortAndExitAreNoticedByThePeer) {
  Start({PeerRole::kLosing});
  transport_->Abort(absl::AbortedError("enough"));
  EXPECT_EQ(peers_[0]->Wait(), 0);
}

TEST_P(ProcessConformanceTest, APeerThatNeverConnectsFailsConnect) {
  auto transport = GetParam().create({"test", 1, 0});
  ASSERT_EQ(transport.status(), absl::OkStatus());
  std::string address;
  {
    PeerProcess peer(GetParam().name, 1, PeerRole::kIdle);
    peer.Exchange(**transport);
    address = peer.address();
    peer.Signal(SIGKILL);
  }
  const absl::Time start = absl::Now();
  const absl::Status status = (*transport)->Connect({{1, address}}, absl::Now() + absl::Seconds(3));
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("device 1"));
  EXPECT_LT(absl::Now() - start, kNoticed);
}

std::vector<Implementation> BetweenProcesses() {
  std::vector<Implementation> implementations = AllImplementations();
  std::erase_if(implementations, [](const Implementation& i) { return !i.crosses_processes; });
  return implementations;
}

std::vector<Implementation> BetweenStrangers() {
  std::vector<Implementation> implementations = BetweenProcesses();
  std::erase_if(implementations, [](const Implementation& i) { return !i.isolates_losses; });
  return implementations;
}

INSTANTIATE_TEST_SUITE_P(All, StrangersConformanceTest, ::testing::ValuesIn(BetweenStrangers()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(All, ProcessConformanceTest, ::testing::ValuesIn(BetweenProcesses()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stagewright::testing

int main(int argc, char** argv) {
  if (argc == 5 && std::strcmp(argv[1], "--peer") == 0) {
    return stagewright::testing::RunPeer(
        argv[2], std::atoi(argv[3]),
        static_cast<stagewright::testing::PeerRole>(std::atoi(argv[4])));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return stagewright::testing::RunGpuTests();
}
