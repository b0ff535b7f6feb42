// What is particular to a store in etcd: fencing, pieces, limits, and a cluster that is away.
#include "planner_service/store/etcd/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/planner_service/store/etcd/etcd_server.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EtcdStoreTest : public ::testing::Test {
 protected:
  std::shared_ptr<EtcdClient> Client(absl::Duration patience = absl::Seconds(60)) const {
    return std::make_shared<EtcdClient>(EtcdPlace{{server_.endpoint()}, "/"}, patience);
  }
  std::unique_ptr<Store> Open(std::optional<FencingToken> token = std::nullopt) const {
    return OpenEtcdStore(client_, "/p", std::move(token)).value();
  }
  // All keys in etcd.
  std::vector<std::string> RawKeys() const {
    etcdserverpb::RangeRequest all;
    all.set_key(std::string(1, '\0'));
    all.set_range_end(std::string(1, '\0'));
    all.set_keys_only(true);
    std::vector<std::string> keys;
    const etcdserverpb::RangeResponse found = client_->Range(all).value();
    for (const auto& kv : found.kvs()) keys.push_back(kv.key());
    return keys;
  }

  testing::EtcdServer server_;
  const std::shared_ptr<EtcdClient> client_ = Client();
};

TEST_F(EtcdStoreTest, ALeaderThatIsOverWritesNothing) {
  ElectionState first = Campaign(client_, "/p", "first", absl::Seconds(600)).value();
  const auto old = Open(first.won->token());
  ASSERT_EQ(old->Write({{"k", "old"}}), absl::OkStatus());
  first.won.reset();
  const std::string large(3'000'000, 'x');
  EXPECT_EQ(old->Write({{"k", "late"}}).code(), absl::StatusCode::kFailedPrecondition)
      << "also while nobody leads";
  const ElectionState second = Campaign(client_, "/p", "second", absl::Seconds(600)).value();
  const auto present = Open(second.won->token());
  ASSERT_EQ(present->Write({{"k", "new"}}), absl::OkStatus());
  for (const std::string& value : {std::string("late"), large}) {
    const absl::Status fenced = old->Write({{"k", value}, {"other", value}});
    EXPECT_EQ(fenced.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(fenced.message()), HasSubstr("another planner leads"));
  }
  EXPECT_EQ(old->WriteIf({{"k", "new"}}, {{"k", std::nullopt}}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(present->Read("k").value(), "new");
  EXPECT_THAT(RawKeys(), ElementsAre("/p/entries/k", "/p/leader"));
}

TEST_F(EtcdStoreTest, PrefixesAreApart) {
  const auto one = OpenEtcdStore(client_, "/p", std::nullopt).value();
  const auto two = OpenEtcdStore(client_, "/p2", std::nullopt).value();
  ASSERT_EQ(one->Write({{"k", "1"}}), absl::OkStatus());
  ASSERT_EQ(two->Write({{"k", "2"}}), absl::OkStatus());
  EXPECT_EQ(one->Scan("").value().size(), 1u);
  EXPECT_EQ(one->Read("k").value(), "1");
}

TEST_F(EtcdStoreTest, PiecesGoWithTheirValues) {
  const auto store = Open();
  const std::string large(3'000'000, 'x');
  ASSERT_EQ(store->Write({{"a", large}, {"b", large}}), absl::OkStatus());
  EXPECT_EQ(RawKeys().size(), 2u + 2 * 3u);
  ASSERT_EQ(store->Write({{"a", large + "y"}, {"b", "small"}}), absl::OkStatus());
  EXPECT_EQ(RawKeys().size(), 2u + 3u);
  ASSERT_EQ(store->WriteIf({{"a", large + "y"}}, {{"a", std::nullopt}}), absl::OkStatus());
  EXPECT_THAT(RawKeys(), ElementsAre("/p/entries/b"));
  EXPECT_EQ(store->WriteIf({{"b", "other"}}, {{"b", large}}).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(RawKeys(), ElementsAre("/p/entries/b")) << "nor does a failed write leave any";
}

TEST_F(EtcdStoreTest, PiecesThatAKilledPlannerLeftAreSwept) {
  const ElectionState state = Campaign(client_, "/p", "first", absl::Seconds(600)).value();
  auto store = Open(state.won->token());
  const std::string large(2'000'000, 'x');
  ASSERT_EQ(store->Write({{"a", large}}), absl::OkStatus());
  etcdserverpb::PutRequest orphan;
  orphan.set_key("/p/pieces/0123/00000000");
  orphan.set_value("bytes");
  ASSERT_EQ(client_->Put(orphan), absl::OkStatus());
  store = Open(state.won->token());
  EXPECT_EQ(RawKeys().size(), 1u + 1u + 2u);
  EXPECT_TRUE(store->Read("a").value() == large);
}

TEST_F(EtcdStoreTest, MissingPiecesAreDataLoss) {
  const auto store = Open();
  ASSERT_EQ(store->Write({{"a", std::string(3'000'000, 'x')}, {"b", "2"}}), absl::OkStatus());
  etcdserverpb::DeleteRangeRequest piece;
  piece.set_key(RawKeys().back());
  ASSERT_EQ(client_->DeleteRange(piece), absl::OkStatus());
  EXPECT_EQ(store->Read("a").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store->Scan("").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(store->Keys("").value(), ElementsAre("a", "b"));
}

TEST_F(EtcdStoreTest, ABatchMayHaveManyMutationsAndBytes) {
  const auto store = Open();
  std::vector<Mutation> batch;
  for (int i = 0; i < 3000; ++i) batch.push_back({absl::StrCat("k", i), std::string(200, 'v')});
  batch.push_back({"large", std::string(700'000, 'l')});
  batch.push_back({"larger", std::string(900'000, 'l')});
  ASSERT_EQ(store->Write(batch), absl::OkStatus());
  EXPECT_EQ(store->Scan("").value().size(), batch.size());
  for (Mutation& mutation : batch) mutation.value.reset();
  ASSERT_EQ(store->Write(batch), absl::OkStatus());
  EXPECT_THAT(RawKeys(), IsEmpty());
  std::vector<Mutation> huge;
  for (int i = 0; i < 200; ++i) huge.push_back({std::string(10'000, 'k') + std::to_string(i), ""});
  EXPECT_EQ(store->Write(huge).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(RawKeys(), IsEmpty());
}

TEST_F(EtcdStoreTest, AClusterThatIsAwayIsAnErrorAndComesBack) {
  const auto store = OpenEtcdStore(Client(absl::Seconds(2)), "/p", std::nullopt).value();
  ASSERT_EQ(store->Write({{"k", "1"}}), absl::OkStatus());
  server_.Stop();
  const absl::Status away = store->Write({{"k", "2"}});
  EXPECT_TRUE(absl::IsUnavailable(away) || absl::IsDeadlineExceeded(away)) << away;
  EXPECT_THAT(std::string(away.message()), HasSubstr(server_.endpoint()));
  server_.Start();
  const auto again = Open();
  EXPECT_EQ(again->Read("k").value(), "1");
  EXPECT_EQ(again->Write({{"k", "3"}}), absl::OkStatus());
}

}  // namespace
}  // namespace stagewright
