#include "worker_daemon/daemon/graphs/graph_keeper.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace stagewright {
namespace {

std::shared_ptr<const std::string> Graph(size_t bytes) {
  return std::make_shared<const std::string>(bytes, 'g');
}

TEST(GraphKeeperTest, KeepsSoManyThatWereUsedLast) {
  GraphKeeper keeper(/*most_graphs=*/3);
  for (const char* name : {"a", "b", "c"}) keeper.Keep(name, Graph(1));
  EXPECT_NE(keeper.Find("a"), nullptr);
  keeper.Keep("d", Graph(1));
  EXPECT_EQ(keeper.Find("b"), nullptr);  // "a" was used since.
  keeper.Keep("c", Graph(1));            // It is there, and the newest now.
  keeper.Keep("e", Graph(1));
  EXPECT_EQ(keeper.Find("a"), nullptr);
  for (const char* name : {"c", "d", "e"}) EXPECT_NE(keeper.Find(name), nullptr) << name;
  EXPECT_EQ(keeper.size(), 3u);
  EXPECT_EQ(keeper.bytes(), Bytes(3));
}

TEST(GraphKeeperTest, KeepsSoManyBytes) {
  GraphKeeper keeper(/*most_graphs=*/8, /*most_bytes=*/10);
  keeper.Keep("a", Graph(4));
  keeper.Keep("b", Graph(4));
  keeper.Keep("c", Graph(3));
  EXPECT_EQ(keeper.Find("a"), nullptr);
  EXPECT_EQ(keeper.bytes(), Bytes(7));
  keeper.Keep("all", Graph(10));
  EXPECT_EQ(keeper.size(), 1u);
  // One that would leave no room for itself takes nobody's.
  keeper.Keep("more", Graph(11));
  EXPECT_EQ(keeper.Find("more"), nullptr);
  EXPECT_EQ(*keeper.Find("all"), *Graph(10));
}

TEST(GraphKeeperTest, OneThatIsForgottenIsStillItsUsers) {
  GraphKeeper keeper(/*most_graphs=*/1);
  keeper.Keep("a", Graph(5));
  const auto used = keeper.Find("a");
  keeper.Keep("b", Graph(1));
  EXPECT_EQ(keeper.Find("a"), nullptr);
  EXPECT_EQ(used->size(), 5u);
}

}  // namespace
}  // namespace stagewright
