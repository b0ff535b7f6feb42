#include "planner_service/search/memory_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace stagewright {
namespace {

using ::testing::ElementsAre;

TEST(MemoryShares, AreTriedUntilLessWillNotHelp) {
  std::vector<double> tried;
  const auto until = [&](double last) {
    return [&tried, last](double share) -> absl::StatusOr<bool> {
      tried.push_back(share);
      return share > last;
    };
  };
  EXPECT_EQ(TryMemoryShares(kChainShares, until(0.75)), absl::OkStatus());
  EXPECT_THAT(tried, ElementsAre(1, 0.9, 0.75));
  tried.clear();
  EXPECT_EQ(TryMemoryShares(kChainShares, until(0)), absl::OkStatus());
  EXPECT_THAT(tried, ElementsAre(1, 0.9, 0.75, 0.55));
}

TEST(MemoryShares, AnErrorEndsTheSearch) {
  int attempts = 0;
  const absl::Status status = TryMemoryShares(kDraftShares, [&](double) -> absl::StatusOr<bool> {
    if (++attempts == 2) return absl::InternalError("broken");
    return true;
  });
  EXPECT_EQ(status, absl::InternalError("broken"));
  EXPECT_EQ(attempts, 2);
}

TEST(MemoryShares, BeginWithAllOfItAndFall) {
  for (std::span<const double> shares :
       {std::span<const double>(kPartitionShares), std::span<const double>(kDraftShares),
        std::span<const double>(kChainShares), std::span<const double>(kLoopedShares)}) {
    EXPECT_EQ(shares.front(), 1);
    for (size_t i = 1; i < shares.size(); ++i) EXPECT_LT(shares[i], shares[i - 1]);
    EXPECT_GT(shares.back(), 0);
  }
}

}  // namespace
}  // namespace stagewright
