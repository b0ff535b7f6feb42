// What every store does, whatever it keeps its entries in.
#include "planner_service/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "planner_service/store/set_aside.h"
#include "tests/planner_service/store/store_cases.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

const std::string kBinary("a\0\xff\x01", 4);

class StoreTest : public ::testing::TestWithParam<testing::StoreCase> {
 protected:
  void Reopen() {
    store_.reset();
    store_ = place_->Open();
  }
  std::map<std::string, std::string> All() const {
    const auto entries = store_->Scan("").value();
    return {entries.begin(), entries.end()};
  }

  const std::unique_ptr<testing::StorePlace> place_ = GetParam().make();
  std::unique_ptr<Store> store_ = place_->Open();
};

INSTANTIATE_TEST_SUITE_P(Stores, StoreTest, ::testing::ValuesIn(testing::AllStores()),
                         [](const auto& of) { return of.param.name; });

TEST_P(StoreTest, ReadsWhatWasWritten) {
  ASSERT_EQ(store_->Write({{"jobs/2", "two"}, {"jobs/1", kBinary}, {"other", ""}}),
            absl::OkStatus());
  EXPECT_EQ(store_->Read("jobs/1").value(), kBinary);
  EXPECT_EQ(store_->Read("other").value(), "");
  EXPECT_EQ(store_->Read("jobs/3").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->Read("jobs/").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(store_->Scan("jobs/").value(),
              ElementsAre(Pair("jobs/1", kBinary), Pair("jobs/2", "two")));
  EXPECT_THAT(store_->Keys("jobs/").value(), ElementsAre("jobs/1", "jobs/2"));
  EXPECT_THAT(store_->Scan("nothing").value(), IsEmpty());
}

TEST_P(StoreTest, KeysAreBytesInTheirOrder) {
  const std::vector<std::string> keys = {std::string("\0", 1),
                                         std::string("a\0b", 3),
                                         "a%",
                                         "aX",
                                         "a_",
                                         "a\x7f",
                                         "a\xff",
                                         "a\xff\xff",
                                         "b",
                                         "\xff",
                                         "\xff\xff"};
  std::vector<Mutation> batch;
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) batch.push_back({*key, "of " + *key});
  ASSERT_EQ(store_->Write(batch), absl::OkStatus());
  EXPECT_THAT(store_->Keys("").value(), ElementsAreArray(keys));
  EXPECT_THAT(store_->Keys("a%").value(), ElementsAre("a%"));
  EXPECT_THAT(store_->Keys("a\xff").value(), ElementsAre("a\xff", "a\xff\xff"));
  EXPECT_THAT(store_->Keys("\xff").value(), ElementsAre("\xff", "\xff\xff"));
  for (const std::string& key : keys) EXPECT_EQ(store_->Read(key).value(), "of " + key);
}

TEST_P(StoreTest, BatchesReplaceAndDelete) {
  ASSERT_EQ(store_->Write({{"k", "1"}, {"gone", "x"}}), absl::OkStatus());
  ASSERT_EQ(store_->Write({{"k", "2"}, {"gone", std::nullopt}, {"never", std::nullopt}}),
            absl::OkStatus());
  EXPECT_THAT(All(), ElementsAre(Pair("k", "2")));
}

TEST_P(StoreTest, TheLastMutationOfAKeyCounts) {
  ASSERT_EQ(store_->Write({{"a", "1"}, {"a", std::nullopt}, {"b", std::nullopt}, {"b", "2"}}),
            absl::OkStatus());
  EXPECT_THAT(All(), ElementsAre(Pair("b", "2")));
  EXPECT_EQ(store_->Write({}), absl::OkStatus());
}

TEST_P(StoreTest, ConditionsGuardTheWholeBatch) {
  ASSERT_EQ(store_->WriteIf({{"k", std::nullopt}}, {{"k", "1"}, {"other", "x"}}), absl::OkStatus());
  const absl::Status taken = store_->WriteIf({{"k", std::nullopt}}, {{"k", "2"}, {"other", "y"}});
  EXPECT_EQ(taken.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(taken.message()), HasSubstr("k"));
  EXPECT_EQ(store_->WriteIf({{"other", "x"}, {"k", "2"}}, {{"new", "z"}}).code(),
            absl::StatusCode::kAborted);
  EXPECT_THAT(All(), ElementsAre(Pair("k", "1"), Pair("other", "x")));
  EXPECT_EQ(store_->WriteIf({{"k", "1"}, {"other", "x"}}, {{"k", std::nullopt}}), absl::OkStatus());
  EXPECT_THAT(All(), ElementsAre(Pair("other", "x")));
}

TEST_P(StoreTest, KeepsEntriesWhenItIsClosed) {
  ASSERT_EQ(store_->Write({{"jobs/1", kBinary}, {kBinary, "2"}}), absl::OkStatus());
  Reopen();
  EXPECT_THAT(All(), ElementsAre(Pair(kBinary, "2"), Pair("jobs/1", kBinary)));
  ASSERT_EQ(store_->Write({{"jobs/1", std::nullopt}}), absl::OkStatus());
  Reopen();
  EXPECT_THAT(All(), ElementsAre(Pair(kBinary, "2")));
}

TEST_P(StoreTest, LargeValuesAreWhole) {
  std::mt19937 random(3);
  std::string large(5'000'011, '\0');
  for (char& byte : large) byte = static_cast<char>(random());
  ASSERT_EQ(store_->Write({{"large", large}, {"twice", large}, {"small", "s"}}), absl::OkStatus());
  Reopen();
  EXPECT_TRUE(store_->Read("large").value() == large);
  EXPECT_TRUE(store_->Scan("tw").value().at(0).second == large);
  large[large.size() / 2] ^= 1;
  ASSERT_EQ(store_->WriteIf({{"small", "s"}}, {{"large", large}}), absl::OkStatus());
  EXPECT_TRUE(store_->Read("large").value() == large);
  EXPECT_FALSE(store_->Read("twice").value() == large);
  EXPECT_EQ(store_->WriteIf({{"twice", large}}, {{"small", "t"}}).code(),
            absl::StatusCode::kAborted);
  ASSERT_EQ(store_->Write({{"large", "now small"}, {"twice", std::nullopt}}), absl::OkStatus());
  EXPECT_THAT(All(), ElementsAre(Pair("large", "now small"), Pair("small", "s")));
}

TEST_P(StoreTest, ManyEntriesAreScannedWhole) {
  std::map<std::string, std::string> model;
  for (int batch = 0; batch < 20; ++batch) {
    std::vector<Mutation> mutations;
    for (int i = 0; i < 100; ++i) {
      const std::string key = absl::StrCat("k/", (batch * 100 + i) * 7919 % 10007);
      model[key] = std::string(static_cast<size_t>(i) * 20, 'v');
      mutations.push_back({key, model[key]});
    }
    ASSERT_EQ(store_->Write(mutations), absl::OkStatus());
  }
  EXPECT_EQ(All(), model);
  EXPECT_EQ(store_->Keys("k/").value().size(), model.size());
}

TEST_P(StoreTest, AgreesWithAMap) {
  std::map<std::string, std::string> model;
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    std::vector<Mutation> batch;
    for (int i = 0; i < 5; ++i) {
      const std::string key = absl::StrCat("k", random() % 20);
      if (random() % 3 == 0) {
        batch.push_back({key, std::nullopt});
        model.erase(key);
      } else {
        batch.push_back({key, absl::StrCat(random())});
        model[key] = *batch.back().value;
      }
    }
    ASSERT_EQ(store_->Write(batch), absl::OkStatus());
    if (round % 30 == 0) Reopen();
  }
  EXPECT_THAT(store_->Scan("").value(), ElementsAreArray(model.begin(), model.end()));
}

TEST_P(StoreTest, WritersAtOnceLoseNothing) {
  constexpr int kWriters = 4;
  constexpr int kEach = 25;
  ASSERT_EQ(store_->Write({{"count", "0"}}), absl::OkStatus());
  std::atomic<int> errors = 0;
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      for (int done = 0; done < kEach;) {
        const std::string count = store_->Read("count").value();
        const std::string next = absl::StrCat(std::stoi(count) + 1);
        const absl::Status status = store_->WriteIf(
            {{"count", count}}, {{"count", next}, {absl::StrCat("by/", writer, "/", done), next}});
        if (status.ok()) {
          ++done;
        } else if (!absl::IsAborted(status)) {
          ++errors;
          return;
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(errors, 0);
  EXPECT_EQ(store_->Read("count").value(), absl::StrCat(kWriters * kEach));
  EXPECT_EQ(store_->Keys("by/").value().size(), static_cast<size_t>(kWriters * kEach));
}

TEST_P(StoreTest, EntriesAreSetAsideAndDropped) {
  ASSERT_EQ(store_->Write({{"jobs/1", "bad"}, {"jobs/2", "good"}}), absl::OkStatus());
  EXPECT_THAT(KeysSetAside(*store_).value(), IsEmpty());
  ASSERT_EQ(SetAside(*store_, "jobs/1"), absl::OkStatus());
  EXPECT_EQ(SetAside(*store_, "jobs/3").code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(store_->Keys("jobs/").value(), ElementsAre("jobs/2"));
  EXPECT_THAT(KeysSetAside(*store_).value(), ElementsAre("jobs/1"));
  EXPECT_EQ(store_->Read(SetAsideKey("jobs/1")).value(), "bad");
  EXPECT_EQ(DropSetAside(*store_).value(), 1);
  EXPECT_THAT(All(), ElementsAre(Pair("jobs/2", "good")));
}

}  // namespace
}  // namespace stagewright
