#include "worker_daemon/profiler/cache_walk.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "common/cost/measured/operator_signature.h"
#include "tests/support/graph_builder.h"

namespace stagewright {
namespace {

using testing::GraphBuilder;

constexpr std::chrono::milliseconds kWork(5);

void Work() { std::this_thread::sleep_for(kWork); }

double Least() { return std::chrono::duration<double, std::nano>(kWork).count(); }

TEST(CacheWalk, TimesWhatLiesBetweenWalks) {
  CacheWalk walk(64 * kMiB);  // Takes several milliseconds itself.
  walk.Begin();
  Work();  // Before the first walk.
  for (int i = 0; i < 3; ++i) {
    walk.Walk();
    if (i < 2) Work();
  }
  const double nanos = walk.Nanos();
  EXPECT_GE(nanos, Least());
  Work();  // After the last one of several.
  EXPECT_EQ(walk.Nanos(), nanos);
}

TEST(CacheWalk, LeavesACoreSomeOfItsCache) {
  EXPECT_GE(BytesOfWalk(), 64 * kKiB);
  EXPECT_LE(BytesOfWalk(), 8 * kMiB);
}

TEST(CacheWalk, TimesWhatFollowsTheOnlyOne) {
  CacheWalk walk(kKiB);
  walk.Walk();
  walk.Walk();
  walk.Begin();
  EXPECT_EQ(walk.Nanos(), 0);
  walk.Walk();
  Work();
  EXPECT_GE(walk.Nanos(), Least());
}

TEST(CacheWalk, PassesGoOverParametersResultsAndTheGradientsOfBoth) {
  GraphBuilder builder("pass");
  const Argument first = builder.Linear(builder.Feature("x", {6}), 6, 5);
  builder.Loss(first, {5});
  const Graph graph = builder.Build();
  const auto bytes = [&](int64_t samples) { return BytesOfPass(graph, std::nullopt, samples); };
  const int64_t parameters = 6 * 5 + 5;
  EXPECT_EQ(bytes(2) - bytes(1), Bytes(2 * 5 * 4));
  const int64_t results = 5 + 1;  // The operator's and the loss.
  EXPECT_EQ(bytes(1), Bytes(2 * 4 * (parameters + results)));
}

}  // namespace
}  // namespace stagewright
