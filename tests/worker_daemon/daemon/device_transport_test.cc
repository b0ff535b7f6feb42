#include "worker_daemon/daemon/device_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/worker_daemon/transport/copy_mover.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<RoutingTransport> Make(int device, bool accelerated) {
  RoutingOptions options;
  if (accelerated) {
    options.mover = testing::MakeCopyMover();
    options.accelerator = absl::StrCat("gpu ", device);
  }
  auto transport = RoutingTransport::Create({"job", 1, device}, std::move(options));
  EXPECT_TRUE(transport.ok()) << transport.status();
  return *std::move(transport);
}

std::vector<int> DevicesOf(const std::vector<Transport::Peer>& peers) {
  std::vector<int> devices;
  for (const Transport::Peer& peer : peers) devices.push_back(peer.device);
  return devices;
}

std::vector<int> TalksWith(const std::vector<Transport::Peer>& peers) {
  std::vector<int> devices;
  for (const Transport::Peer& peer : peers) {
    if (peer.talks) devices.push_back(peer.device);
  }
  return devices;
}

TEST(PeersToConnect, AcceleratorsMeetAllOthers) {
  std::vector<std::unique_ptr<RoutingTransport>> transports;
  std::vector<Transport::Peer> addresses;
  for (int device = 0; device < 5; ++device) {
    transports.push_back(Make(device, /*accelerated=*/device >= 2));
    addresses.push_back({device, transports.back()->Address()});
  }
  EXPECT_THAT(DevicesOf(PeersToConnect(*transports[0], {1, 3}, {}, addresses)), ElementsAre(1, 3));
  EXPECT_THAT(DevicesOf(PeersToConnect(*transports[2], {1}, {}, addresses)), ElementsAre(1, 3, 4));
  EXPECT_THAT(DevicesOf(PeersToConnect(*transports[3], {2, 4}, {}, addresses)), ElementsAre(2, 4));
  EXPECT_THAT(TalksWith(PeersToConnect(*transports[2], {1, 3}, {3}, addresses)), ElementsAre(3));
  EXPECT_FALSE(RoutingTransport::HasAccelerator("no address"));
}

TEST(MemoryWayTaken, IsWhatTheJobGets) {
  const OfferedDevice cpu{"cpu0", "cpu"};
  OfferedDevice gpu{"cuda0", "cuda:0"};
  for (const bool accelerated : {true, false}) {
    std::vector<std::unique_ptr<RoutingTransport>> pair;
    for (int device = 0; device < 2; ++device) pair.push_back(Make(device, accelerated));
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([self = pair[i].get(), peer = pair[1 - i].get()] {
        EXPECT_EQ(
            self->Connect({{peer->device(), peer->Address()}}, absl::Now() + absl::Minutes(1)),
            absl::OkStatus());
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(*MemoryWayTaken(*pair[0], cpu), "");
    gpu.memory_way = DeviceMemoryWay::kAuto;
    EXPECT_EQ(*MemoryWayTaken(*pair[0], gpu), accelerated ? "by NCCL" : "through host memory");
    gpu.memory_way = DeviceMemoryWay::kNccl;
    const auto wanted = MemoryWayTaken(*pair[0], gpu);
    EXPECT_EQ(wanted.status().code(),
              accelerated ? absl::StatusCode::kOk : absl::StatusCode::kFailedPrecondition);
  }
}

TEST(MakeDeviceTransport, IsOfTheDevicesKind) {
  auto cpu = MakeDeviceTransport({"job", 1, 7}, {"cpu0", "cpu", 1}, "");
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_FALSE((*cpu)->has_accelerator());
  for (const char* name : {"cuda:x", "tpu", "cuda"}) {
    const auto refused = MakeDeviceTransport({"job", 1, 7}, {"odd", name, 1}, "");
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << name;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(name));
  }
}

#if STAGEWRIGHT_HAVE_NCCL
// With a GPU it has one, without it says so: never a silent fall-back.
TEST(MakeDeviceTransport, AGpuHasItsWay) {
  const auto gpu = MakeDeviceTransport({"job", 1, 7}, {"cuda0", "cuda:0", 1}, "");
  if (gpu.ok()) {
    EXPECT_TRUE((*gpu)->has_accelerator());
  } else {
    EXPECT_TRUE(absl::IsFailedPrecondition(gpu.status())) << gpu.status();
    EXPECT_THAT(std::string(gpu.status().message()), HasSubstr("device cuda0: no GPU"));
  }
}
#endif

}  // namespace
}  // namespace stagewright
