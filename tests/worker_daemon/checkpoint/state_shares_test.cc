#include "worker_daemon/checkpoint/state_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

TEST(StateShares, NamesAreReadBack) {
  const auto read = ParseShareName(ShareName({"a.b@c.exp_avg", 12, 40}));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->state, "a.b@c.exp_avg");
  EXPECT_EQ(read->begin, 12);
  EXPECT_EQ(read->end, 40);
  for (const char* name : {"weight.exp_avg", "a@b.exp_avg", "a.exp_avg@", "a.exp_avg@1",
                           "a.exp_avg@1-", "a.exp_avg@2-1", "a.exp_avg@-1-2", "a.exp_avg@1-x"})
    EXPECT_FALSE(ParseShareName(name).has_value()) << name;
}

class JoinSharesTest : public ::testing::Test {
 protected:
  StoredShare Share(int64_t begin, int64_t end) const {
    const auto part = std::span(values_).subspan(begin, end - begin);
    return {{"w.exp_avg", begin, end},
            {ShareName({"w.exp_avg", begin, end}),
             DType::kFloat64,
             {end - begin},
             std::as_bytes(part)}};
  }
  const std::vector<double> values_ = {1, 2, 3, 4, 5, 6};
};

TEST_F(JoinSharesTest, InAnyOrderMakeTheWhole) {
  const auto joined =
      JoinShares("w.exp_avg", {2, 3}, {Share(4, 6), Share(0, 1), Share(6, 6), Share(1, 4)});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->shape, (std::vector<int64_t>{2, 3}));
  std::vector<double> read(6);
  ASSERT_TRUE(ReadTensor(joined->view(), std::as_writable_bytes(std::span(read))).ok());
  EXPECT_EQ(read, values_);
}

TEST_F(JoinSharesTest, WhatIsMissingOrThereTwiceIsDamage) {
  const std::vector<std::vector<StoredShare>> wrong = {
      {Share(0, 4)}, {Share(1, 6)}, {Share(0, 2), Share(3, 6)}, {Share(0, 4), Share(3, 6)}, {}};
  for (const std::vector<StoredShare>& shares : wrong) {
    const auto joined = JoinShares("w.exp_avg", {6}, shares);
    EXPECT_TRUE(absl::IsDataLoss(joined.status())) << joined.status();
    EXPECT_THAT(std::string(joined.status().message()), HasSubstr("w.exp_avg"));
  }
}

}  // namespace
}  // namespace stagewright
