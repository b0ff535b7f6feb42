#include "tests/worker_daemon/transport/worlds.h"

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/check.h"

namespace stagewright::testing {
absl::Time Soon() { return absl::Now() + kSoon; }

World ImplementationTest::Connected(int size, uint64_t generation) {
  return ConnectedWorld(GetParam(), size, generation);
}

World CreateWorld(const Implementation& implementation, int size, uint64_t generation) {
  World world;
  for (int device = 0; device < size; ++device) {
    auto transport = implementation.create({"test", generation, device});
    if (!transport.ok()) std::fprintf(stderr, "%s\n", transport.status().ToString().c_str());
    CHECK(transport.ok());
    world.push_back(*std::move(transport));
  }
  return world;
}

namespace {

// Calls `function` for each transport on a thread of its own; the first error.
absl::Status OnAll(World& world, const std::function<absl::Status(Transport&)>& function) {
  std::vector<absl::Status> results(world.size());
  std::vector<std::thread> threads;
  for (size_t self = 0; self < world.size(); ++self)
    threads.emplace_back([&, self] { results[self] = function(*world[self]); });
  for (std::thread& thread : threads) thread.join();
  absl::Status status;
  for (const absl::Status& result : results) status.Update(result);
  return status;
}

}  // namespace

absl::Status ConnectWorld(World& world) {
  return OnAll(world, [&](Transport& self) {
    std::vector<Transport::Peer> peers;
    for (const std::unique_ptr<Transport>& other : world) {
      if (other.get() != &self) peers.push_back({other->device(), other->Address()});
    }
    return self.Connect(peers, Soon());
  });
}

absl::Status OpenCollectives(World& world, const std::vector<std::vector<int>>& lists) {
  return OnAll(world, [&](Transport& self) { return self.OpenCollectives(lists, Soon()); });
}

World ConnectedWorld(const Implementation& implementation, int size, uint64_t generation) {
  World world = CreateWorld(implementation, size, generation);
  const absl::Status status = ConnectWorld(world);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  CHECK(status.ok());
  return world;
}

std::vector<char> Pattern(size_t bytes, uint32_t seed) {
  std::vector<char> pattern(bytes);
  uint32_t state = seed * 2654435761u + 1;
  for (char& byte : pattern) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<char>(state >> 24);
  }
  return pattern;
}

}  // namespace stagewright::testing
