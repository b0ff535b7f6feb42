#include "worker_daemon/transport/arranged/arranged_transport.h"

#include <atomic>
#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker_daemon/transport/copy_mover.h"
#include "tests/worker_daemon/transport/delegating_mover.h"
#include "tests/worker_daemon/transport/worlds.h"
#include "worker_daemon/transport/all_reduce.h"
#include "worker_daemon/transport/completion.h"
#include "worker_daemon/transport/routing/routing_transport.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

constexpr Tag kTag{4, Traffic::kActivation, 1};

// Copies, until it is told to break.
class BreakableMover : public DelegatingMover {
 public:
  explicit BreakableMover(std::atomic<bool>* broken)
      : DelegatingMover(MakeCopyMover()), broken_(broken) {}

  absl::StatusOr<std::vector<uint64_t>> Ended() override {
    if (*broken_) return absl::InternalError("the cable broke");
    return DelegatingMover::Ended();
  }

 private:
  std::atomic<bool>* const broken_;
};

std::unique_ptr<RoutingTransport> Create(int device, std::string accelerator,
                                         std::unique_ptr<DeviceMover> mover) {
  RoutingOptions options;
  options.mover = std::move(mover);
  options.accelerator = std::move(accelerator);
  auto transport = RoutingTransport::Create({"test", 1, device}, std::move(options));
  EXPECT_EQ(transport.status(), absl::OkStatus());
  return *std::move(transport);
}

// Connects each to those of `devices[i]`.
std::vector<absl::Status> Connect(std::vector<std::unique_ptr<RoutingTransport>>& world,
                                  const std::vector<std::vector<int>>& devices,
                                  absl::Duration patience) {
  std::vector<absl::Status> results(world.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < world.size(); ++i) {
    std::vector<Transport::Peer> peers;
    for (const int device : devices[i]) peers.push_back({device, world[device]->Address()});
    threads.emplace_back(
        [&, i, peers] { results[i] = world[i]->Connect(peers, absl::Now() + patience); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

// All open the lists.
void OpenLists(std::vector<std::unique_ptr<RoutingTransport>>& world,
               const std::vector<std::vector<int>>& lists) {
  std::vector<std::thread> threads;
  for (const auto& self : world) {
    threads.emplace_back([&lists, transport = self.get()] {
      EXPECT_EQ(transport->OpenCollectives(lists, absl::Now() + kSoon), absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ArrangedTransportTest, AllMustBeConnectedToAll) {
  std::vector<std::unique_ptr<RoutingTransport>> world;
  for (int i = 0; i < 3; ++i) world.push_back(Create(i, absl::StrCat("a", i), MakeCopyMover()));
  const auto results = Connect(world, {{1, 2}, {0}, {0, 1}}, absl::Seconds(3));
  EXPECT_EQ(results[1].code(), absl::StatusCode::kFailedPrecondition) << results[1];
  EXPECT_THAT(std::string(results[1].message()),
              HasSubstr("device 1 was connected to devices 0, 1"));
  EXPECT_FALSE(results[0].ok());
  EXPECT_FALSE(results[2].ok());
}

TEST(ArrangedTransportTest, OneAcceleratorForTwoDevicesMeansNoWayForItsMemory) {
  std::vector<std::unique_ptr<RoutingTransport>> world;
  for (int i = 0; i < 3; ++i) world.push_back(Create(i, i == 2 ? "a" : "b", MakeCopyMover()));
  for (const auto& result : Connect(world, {{1, 2}, {0, 2}, {0, 1}}, kSoon)) {
    EXPECT_EQ(result, absl::OkStatus());
  }
  for (const auto& transport : world) EXPECT_EQ(transport->ForDeviceMemory({0, 1, 2}), nullptr);
}

TEST(ArrangedTransportTest, DevicesWithoutAcceleratorsAreNoPartOfIt) {
  std::vector<std::unique_ptr<RoutingTransport>> world;
  world.push_back(Create(0, "", nullptr));
  for (int i = 1; i < 3; ++i) world.push_back(Create(i, absl::StrCat("a", i), MakeCopyMover()));
  for (const auto& result : Connect(world, {{1, 2}, {0, 2}, {0, 1}}, kSoon)) {
    EXPECT_EQ(result, absl::OkStatus());
  }
  EXPECT_EQ(world[0]->ForDeviceMemory({0, 1}), nullptr);
  EXPECT_EQ(world[1]->ForDeviceMemory({0, 1}), nullptr);
  ASSERT_NE(world[1]->ForDeviceMemory({1, 2}), nullptr);
  const int out = 5;
  int in = 0;
  Completion received;
  world[2]->ForDeviceMemory({1})->Receive(1, kTag, &in, sizeof(in), received.Callback());
  // A receive in host memory with the same tag does not meet that in device memory.
  int host_in = 0;
  Completion host_received;
  world[2]->Receive(1, kTag, &host_in, sizeof(host_in), host_received.Callback());
  const int host_out = 6;
  EXPECT_EQ(SendAndWait(*world[1], 2, kTag, &host_out, sizeof(host_out), Soon()), absl::OkStatus());
  EXPECT_EQ(SendAndWait(*world[1]->ForDeviceMemory({2}), 2, kTag, &out, sizeof(out), Soon()),
            absl::OkStatus());
  EXPECT_EQ(received.Wait(*world[2], Soon()), absl::OkStatus());
  EXPECT_EQ(host_received.Wait(*world[2], Soon()), absl::OkStatus());
  EXPECT_EQ(in, 5);
  EXPECT_EQ(host_in, 6);
}

TEST(ArrangedTransportTest, AMoverThatBreaksFailsWhatIsPending) {
  std::atomic<bool> broken = false;
  std::vector<std::unique_ptr<RoutingTransport>> world;
  for (int i = 0; i < 2; ++i) {
    world.push_back(Create(i, absl::StrCat("a", i), std::make_unique<BreakableMover>(&broken)));
  }
  for (const auto& result : Connect(world, {{1}, {0}}, kSoon)) ASSERT_EQ(result, absl::OkStatus());
  Transport& device = *world[0]->ForDeviceMemory({1});
  int in[2] = {};
  Completion waits;
  device.Receive(1, Tag{9}, &in[0], sizeof(int), waits.Callback());
  Completion received;
  device.Receive(1, kTag, &in[1], sizeof(int), received.Callback());
  broken = true;
  const int out = 5;
  Completion sent;
  world[1]->ForDeviceMemory({0})->Send(0, kTag, &out, sizeof(out), sent.Callback());
  for (const Completion& completion : {waits, received}) {
    const absl::Status status = completion.Wait(device, Soon());
    EXPECT_EQ(status, absl::InternalError("the cable broke"));
  }
  EXPECT_EQ(SendAndWait(device, 1, kTag, &out, sizeof(out), Soon()),
            absl::InternalError("the cable broke"));
}

// Devices reduce over several lists and send around a ring, all at once and in orders of their own.
TEST(ArrangedTransportTest, ReductionsAndMessagesInAnyOrder) {
  constexpr int kDevices = 3;
  std::vector<std::unique_ptr<RoutingTransport>> world;
  for (int i = 0; i < kDevices; ++i) {
    world.push_back(Create(i, absl::StrCat("a", i), MakeCopyMover()));
  }
  for (const auto& result : Connect(world, {{1, 2}, {0, 2}, {0, 1}}, kSoon)) {
    ASSERT_EQ(result, absl::OkStatus());
  }
  const std::vector<std::vector<int>> lists = {{0, 1, 2}, {2, 0}, {1, 2}, {2, 1, 0}};
  OpenLists(world, lists);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int self = 0; self < kDevices; ++self) {
    threads.emplace_back([&, self] {
      Transport& device = *world[self]->ForDeviceMemory({self});
      for (uint32_t round = 0; round < 30; ++round) {
        const int next = (self + 1) % kDevices;
        const int previous = (self + kDevices - 1) % kDevices;
        std::vector<float> terms(lists.size(), static_cast<float>(self + 1));
        const int out = self;
        int in = -1;
        std::vector<Completion> completions;
        for (size_t k = 0; k < lists.size(); ++k) {
          const size_t i = self % 2 == 0 ? k : lists.size() - 1 - k;
          if (std::count(lists[i].begin(), lists[i].end(), self) == 0) continue;
          device.RunCollective(Collective::kAllReduce, lists[i],
                               {static_cast<uint32_t>(i), Traffic::kReduction, round}, &terms[i], 1,
                               Element::kFloat32, completions.emplace_back().Callback());
        }
        device.Send(next, {9, Traffic::kActivation, round}, &out, sizeof(out),
                    completions.emplace_back().Callback());
        device.Receive(previous, {9, Traffic::kActivation, round}, &in, sizeof(in),
                       completions.emplace_back().Callback());
        for (const Completion& completion : completions) {
          wrong += !completion.Wait(device, Soon()).ok();
        }
        wrong += in != previous;
        for (size_t i = 0; i < lists.size(); ++i) {
          float sum = 0;
          for (const int member : lists[i]) sum += static_cast<float>(member + 1);
          const bool mine = std::count(lists[i].begin(), lists[i].end(), self) > 0;
          wrong += mine && terms[i] != sum;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ArrangedTransportTest, RefusesCollectivesThatWereNotOpened) {
  std::vector<std::unique_ptr<RoutingTransport>> world;
  for (int i = 0; i < 2; ++i) world.push_back(Create(i, absl::StrCat("a", i), MakeCopyMover()));
  for (const auto& result : Connect(world, {{1}, {0}}, kSoon)) ASSERT_EQ(result, absl::OkStatus());
  float value = 1;
  Completion completion;
  world[1]->ForDeviceMemory({0})->RunCollective(Collective::kAllReduce, {0, 1}, kTag, &value, 1,
                                                Element::kFloat32, completion.Callback());
  EXPECT_EQ(
      completion.Wait(*world[1], Soon()),
      absl::FailedPreconditionError("device 1: collectives among devices 0, 1 were not opened"));
}

// Copies, and has passed as many of its marks as it is told.
class SlowMover : public BreakableMover {
 public:
  SlowMover(std::atomic<bool>* broken, std::atomic<int>* passed)
      : BreakableMover(broken), passed_(passed) {}
  std::shared_ptr<void> Mark() override { return std::make_shared<int>(++marks_); }
  bool Passed(const std::shared_ptr<void>& mark) override {
    return *static_cast<const int*>(mark.get()) <= *passed_;
  }

 private:
  std::atomic<int>* const passed_;
  std::atomic<int> marks_ = 0;
};

// What another kernel still makes is not offered, so that it keeps nobody from what is there; among
// equal tags the order of posting holds all the same.
TEST(ArrangedTransportTest, ASendWaitsForItsDataAndNobodyForTheSend) {
  for (const int sender : {0, 1}) {  // The arranger's own, and another's.
    std::atomic<bool> broken = false;
    std::atomic<int> passed = 0, everything = 1000;
    std::vector<std::unique_ptr<RoutingTransport>> world;
    for (int i = 0; i < 2; ++i) {
      world.push_back(
          Create(i, absl::StrCat("a", i),
                 std::make_unique<SlowMover>(&broken, i == sender ? &passed : &everything)));
    }
    for (const auto& result : Connect(world, {{1}, {0}}, kSoon))
      ASSERT_EQ(result, absl::OkStatus());
    const int receiver = 1 - sender;
    Transport& from = *world[sender]->ForDeviceMemory({receiver});
    Transport& to = *world[receiver]->ForDeviceMemory({sender});
    const int out[3] = {1, 2, 3};
    int in[3] = {};
    Completion sent[3], received[3], back_sent, back_received;
    for (int i = 0; i < 3; ++i)
      to.Receive(sender, kTag, &in[i], sizeof(int), received[i].Callback());
    for (int i = 0; i < 3; ++i) from.Send(receiver, kTag, &out[i], sizeof(int), sent[i].Callback());
    const int back = 9;
    int back_in = 0;
    from.Receive(receiver, kTag, &back_in, sizeof(int), back_received.Callback());
    to.Send(sender, kTag, &back, sizeof(int), back_sent.Callback());
    EXPECT_EQ(back_received.Wait(from, Soon()), absl::OkStatus());
    EXPECT_EQ(back_in, 9);
    EXPECT_EQ(in[0], 0);
    passed = 1;
    EXPECT_EQ(received[0].Wait(to, Soon()), absl::OkStatus());
    EXPECT_EQ(in[0], 1);
    EXPECT_EQ(in[1], 0);
    passed = 3;
    for (const Completion& completion : received)
      EXPECT_EQ(completion.Wait(to, Soon()), absl::OkStatus());
    EXPECT_EQ(in[1], 2);
    EXPECT_EQ(in[2], 3);
  }
}

TEST(ArrangedTransportTest, ReductionsOfDifferentSizesFail) {
  std::vector<std::unique_ptr<RoutingTransport>> world;
  for (int i = 0; i < 2; ++i) world.push_back(Create(i, absl::StrCat("a", i), MakeCopyMover()));
  for (const auto& result : Connect(world, {{1}, {0}}, kSoon)) ASSERT_EQ(result, absl::OkStatus());
  OpenLists(world, {{0, 1}});
  std::vector<float> data[2] = {std::vector<float>(3), std::vector<float>(4)};
  Completion completions[2];
  for (int i = 0; i < 2; ++i) {
    world[i]->ForDeviceMemory({i})->RunCollective(Collective::kAllReduce, {0, 1}, kTag,
                                                  data[i].data(), data[i].size(), Element::kFloat32,
                                                  completions[i].Callback());
  }
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = completions[i].Wait(*world[i], Soon());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
}

}  // namespace
}  // namespace stagewright::testing
