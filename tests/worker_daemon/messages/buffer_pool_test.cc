#include "worker_daemon/messages/buffer_pool.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

namespace stagewright {
namespace {

TEST(BufferPoolTest, GivesMemoryOutAgainWhenTheLastTensorHasDied) {
  BufferPool pool(std::map<Bytes, int32_t>{{1024, 1}});
  at::Tensor buffer = pool.Take(1024);
  EXPECT_EQ(buffer.numel(), 1024);
  EXPECT_EQ(buffer.scalar_type(), at::kByte);
  const void* const data = buffer.data_ptr();
  at::Tensor view = buffer.narrow(0, 512, 512).view(at::kDouble);
  buffer = at::Tensor();
  const at::Tensor other = pool.Take(1024);  // The view still refers to the first.
  EXPECT_NE(other.data_ptr(), data);
  EXPECT_EQ(pool.allocations(), 2);
  view = at::Tensor();
  EXPECT_EQ(pool.Take(1024).data_ptr(), data);
  EXPECT_EQ(pool.Take(1024).data_ptr(), data);
  EXPECT_EQ(pool.allocations(), 2);
}

TEST(BufferPoolTest, KeepsNoMoreThanItsCounts) {
  BufferPool pool(std::map<Bytes, int32_t>{{64, 2}});
  {
    const at::Tensor buffers[] = {pool.Take(64), pool.Take(64), pool.Take(64)};
    EXPECT_EQ(pool.allocations(), 3);
  }
  const at::Tensor buffers[] = {pool.Take(64), pool.Take(64)};
  EXPECT_EQ(pool.allocations(), 3);
  const at::Tensor third = pool.Take(64);
  EXPECT_EQ(pool.allocations(), 4);
  pool.Take(32);  // A size it knows nothing of.
  pool.Take(32);
  EXPECT_EQ(pool.allocations(), 6);
  EXPECT_EQ(pool.Take(0).numel(), 0);
  EXPECT_EQ(pool.allocations(), 6);
}

TEST(BufferPoolTest, BuffersMayOutliveThePool) {
  std::optional<BufferPool> pool(std::in_place, std::map<Bytes, int32_t>{{256, 1}});
  const at::Tensor buffer = pool->Take(256).zero_();
  pool.reset();
  EXPECT_EQ(buffer.sum().item<int64_t>(), 0);
}

TEST(BufferPoolTest, ThreadsNeverShareABuffer) {
  constexpr int kThreads = 4, kRounds = 500;
  BufferPool pool(std::map<Bytes, int32_t>{{4096, kThreads}});
  std::vector<std::thread> threads;
  std::vector<int> wrong(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const at::Tensor buffer = pool.Take(4096).fill_(t);
        std::this_thread::yield();
        if (!buffer.eq(t).all().item<bool>()) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(kThreads));
  EXPECT_LE(pool.allocations(), kThreads);
}

}  // namespace
}  // namespace stagewright
