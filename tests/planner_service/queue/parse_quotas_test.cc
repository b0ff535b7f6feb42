#include "planner_service/queue/parse_quotas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

TEST(ParseQuotasTest, ReadsOwnersTenantsAndAllOthers) {
  const auto rules = ParseQuotas({"alice=8", "team=a=2", "*=1"}, {"vision=3", "*=4"});
  ASSERT_TRUE(rules.ok()) << rules.status();
  EXPECT_EQ(rules->QuotaOf(Account::Of("alice", "")), 8);
  EXPECT_EQ(rules->QuotaOf(Account::Of("team=a", "")), 2);
  EXPECT_EQ(rules->QuotaOf(Account::Of("bob", "")), 1);
  EXPECT_EQ(rules->QuotaOf(Account::Of("", "")), 1);
  EXPECT_EQ(rules->QuotaOf(Account::Of("vision", "")), 1) << "no tenant of that name";
  EXPECT_EQ(rules->QuotaOf(Account::Of("alice", "vision")), 3);
  EXPECT_EQ(rules->QuotaOf(Account::Of("bob", "vision")), 3);
  EXPECT_EQ(rules->QuotaOf(Account::Of("alice", "speech")), 4);
  EXPECT_EQ(ParseQuotas({}, {"*=4"})->QuotaOf(Account::Of("bob", "")), std::nullopt);
  EXPECT_EQ(ParseQuotas({"*=4"}, {})->QuotaOf(Account::Of("bob", "vision")), std::nullopt);
}

TEST(ParseQuotasTest, NamesWhatIsWrong) {
  const auto message = [](const absl::StatusOr<QueueRules>& rules) {
    EXPECT_EQ(rules.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(rules.status().message());
  };
  for (const char* wrong : {"alice", "=3", "alice=", "alice=x", "alice=-1", "alice=1.5", ""}) {
    const auto is_none = HasSubstr(std::string("\"") + wrong + "\" is no quota: expected ");
    EXPECT_THAT(message(ParseQuotas({"bob=1", wrong}, {})), is_none);
    EXPECT_THAT(message(ParseQuotas({}, {"vision=1", wrong})), is_none);
  }
  EXPECT_THAT(message(ParseQuotas({"bob=1", "bob=2"}, {})), HasSubstr("owner bob has two quotas"));
  EXPECT_THAT(message(ParseQuotas({"*=1", "*=2"}, {})), HasSubstr("owner * has two quotas"));
  EXPECT_THAT(message(ParseQuotas({}, {"a=1", "a=2"})), HasSubstr("tenant a has two quotas"));
}

}  // namespace
}  // namespace stagewright
