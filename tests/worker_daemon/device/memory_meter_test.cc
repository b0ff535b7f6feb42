#include "worker_daemon/device/memory_meter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace stagewright {
namespace {

at::Tensor Block(int64_t bytes) { return at::empty({bytes}, at::kByte); }

TEST(MemoryMeter, CountsWhatIsThereAndTheMostThereWas) {
  const MemoryMeter meter("cpu");
  const MemoryMeter::Scope scope(&meter);
  at::Tensor a = Block(1000);
  const at::Tensor b = Block(300);
  EXPECT_EQ(meter.now(), 1300);
  EXPECT_EQ(meter.peak(), 1300);
  a = at::Tensor();
  EXPECT_EQ(meter.now(), 300);
  const at::Tensor view = b.narrow(0, 0, 10);
  EXPECT_EQ(meter.now(), 300);
  const at::Tensor c = Block(200);
  EXPECT_EQ(meter.now(), 500);
  EXPECT_EQ(meter.peak(), 1300);
  EXPECT_EQ(meter.figures().allocations, 3);
  EXPECT_EQ(meter.refused().asked, 0);
}

TEST(MemoryMeter, CountsOnlyInsideScopesWhichNest) {
  const MemoryMeter outer("cpu"), inner("cpu");
  const at::Tensor before = Block(7);
  const MemoryMeter::Scope scope(&outer);
  const at::Tensor a = Block(10);
  at::Tensor b;
  {
    const MemoryMeter::Scope nested(&inner);
    b = Block(20);
    const MemoryMeter::Scope none(nullptr);
    EXPECT_EQ(Block(40).numel(), 40);
  }
  const at::Tensor c = Block(30);
  EXPECT_EQ(outer.peak(), 40);
  EXPECT_EQ(inner.peak(), 20);
  b = at::Tensor();  // In the scope of another.
  EXPECT_EQ(inner.now(), 0);
  EXPECT_EQ(outer.now(), 40);
}

TEST(MemoryMeter, BlocksMayOutliveTheMeter) {
  auto meter = std::make_unique<MemoryMeter>("cpu");
  at::Tensor kept;
  {
    const MemoryMeter::Scope scope(meter.get());
    kept = Block(100);
  }
  meter.reset();
  kept.fill_(1);
  EXPECT_EQ(kept.sum().item<int64_t>(), 100);
  kept = at::Tensor();
}

TEST(MemoryMeter, ThreadsThatShareAMeterLoseNoByte) {
  const MemoryMeter meter("cpu");
  constexpr int kThreads = 4, kBlocks = 2000;
  std::vector<std::vector<at::Tensor>> blocks(kThreads);
  const auto with_threads = [](auto work) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
    for (std::thread& thread : threads) thread.join();
  };
  with_threads([&](int t) {
    const MemoryMeter::Scope scope(&meter);
    for (int i = 0; i < kBlocks; ++i) blocks[t].push_back(Block(1 + i % 7));
  });
  Bytes all = 0;
  for (const auto& of_thread : blocks) {
    for (const at::Tensor& block : of_thread) all += Bytes(block.numel());
  }
  EXPECT_EQ(meter.now(), all);
  EXPECT_EQ(meter.peak(), all);
  with_threads([&](int t) { blocks[(t + 1) % kThreads].clear(); });
  EXPECT_EQ(meter.now(), 0);
}

TEST(MemoryMeter, BackwardPassesAreCountedOnTheThreadThatRunsThem) {
  const MemoryMeter meter("cpu");
  const MemoryMeter::Scope scope(&meter);
  const at::Tensor x = at::ones({1000}, at::kFloat).requires_grad_(true);
  (x * x).sum().backward();
  EXPECT_EQ(meter.now(), 8000);  // Itself and its gradient.
}

TEST(MemoryMeter, ALimitIsKeptAndWhatWasAskedForIsTold) {
  const MemoryMeter meter("cpu", /*limit=*/1000);
  const MemoryMeter::Scope scope(&meter);
  const at::Tensor kept = Block(600);
  EXPECT_THROW(Block(401), c10::OutOfMemoryError);
  EXPECT_EQ(meter.now(), 600);
  EXPECT_EQ(meter.peak(), 600);
  EXPECT_EQ(meter.refused().asked, 401);
  EXPECT_EQ(meter.refused().in_use, 600);
  EXPECT_EQ(Block(400).numel(), 400);
}

TEST(MemoryMeter, WhatTheMachineCannotGiveIsOutOfMemoryToo) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer ends the process instead";
#endif
  const MemoryMeter meter("cpu");
  const MemoryMeter::Scope scope(&meter);
  const int64_t bytes = int64_t{1} << 60;
  EXPECT_THROW(Block(bytes), c10::OutOfMemoryError);
  EXPECT_EQ(meter.refused().asked, bytes);
  EXPECT_EQ(meter.refused().in_use, 0);
  EXPECT_EQ(meter.now(), 0);
}

TEST(MemoryMeter, BlocksKeepTheAlignmentAndEmptyOnesAreFree) {
  const MemoryMeter meter("cpu");
  const MemoryMeter::Scope scope(&meter);
  for (int64_t bytes : {1, 63, 64, 100000}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(Block(bytes).data_ptr()) % c10::gAlignment, 0u);
  }
  const at::Tensor empty = Block(0);
  EXPECT_EQ(meter.now(), 0);
}

}  // namespace
}  // namespace stagewright
