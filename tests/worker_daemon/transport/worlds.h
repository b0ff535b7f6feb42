// Sets of connected transports for tests: the devices of a job, all in this process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "worker_daemon/transport/identity.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright::testing {

// How long a test waits for what must happen soon.
inline constexpr absl::Duration kSoon = absl::Seconds(60);
absl::Time Soon();

using World = std::vector<std::unique_ptr<Transport>>;

struct Implementation {
  std::string name;  // Letters only.
  std::function<absl::StatusOr<std::unique_ptr<Transport>>(TransportIdentity)> create;
  // Whether the loss of a device leaves transfers between others alone.
  bool isolates_losses = true;
  // Whether its devices may be in different processes.
  bool crosses_processes = false;
  // Why it cannot run on this machine; "" if it can. Tests are skipped then.
  std::string absent;
};

// Every implementation that must pass the conformance suite; in programs for machines with GPUs,
// those for GPUs (implementations_nccl.cc).
std::vector<Implementation> AllImplementations();

// A suite over them: Connected() and the like are for its tests.
class ImplementationTest : public ::testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    if (!GetParam().absent.empty()) GTEST_SKIP() << GetParam().absent;
  }
  World Connected(int size, uint64_t generation = 1);
};

// Devices 0..size-1, not connected.
World CreateWorld(const Implementation& implementation, int size, uint64_t generation = 1);

// Connects each device to all others.
absl::Status ConnectWorld(World& world);

// Makes collectives possible among each of `lists`.
absl::Status OpenCollectives(World& world, const std::vector<std::vector<int>>& lists);

// Creates and connects; a failure of either ends the test program.
World ConnectedWorld(const Implementation& implementation, int size, uint64_t generation = 1);

// Bytes that depend on the seed and on the place.
std::vector<char> Pattern(size_t bytes, uint32_t seed);

}  // namespace stagewright::testing
