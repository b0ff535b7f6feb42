#include "planner_service/store/timed_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner_service/store/sqlite_store.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(TimedStoreTest, SaysOfEachCallWhatItWasAndHowItEnded) {
  std::vector<std::pair<std::string, absl::StatusCode>> calls;
  TimedStore store(OpenSqliteStore(":memory:").value().store, [&](const StoreCall& call) {
    EXPECT_GE(call.took, absl::ZeroDuration());
    calls.emplace_back(call.name, call.code);
  });
  EXPECT_TRUE(store.Write({{"a", "1"}}).ok());
  EXPECT_TRUE(absl::IsAborted(store.WriteIf({{"a", "2"}}, {{"a", "3"}})));
  EXPECT_EQ(store.Read("a").value(), "1");
  EXPECT_TRUE(absl::IsNotFound(store.Read("b").status()));
  EXPECT_THAT(store.Scan("").value(), ElementsAre(Pair("a", "1")));
  EXPECT_THAT(store.Keys("").value(), ElementsAre("a"));
  using Code = absl::StatusCode;
  EXPECT_THAT(calls, ElementsAre(Pair("write", Code::kOk), Pair("write", Code::kAborted),
                                 Pair("read", Code::kOk), Pair("read", Code::kNotFound),
                                 Pair("scan", Code::kOk), Pair("keys", Code::kOk)));
}

}  // namespace
}  // namespace stagewright
