#include "worker_daemon/transport/proof/generation_key.h"

#include <set>

#include "gtest/gtest.h"

namespace stagewright {
namespace {

const std::string kKey(GenerationKey::kBytes, 'k');
const std::string kOther(GenerationKey::kBytes, 'o');

TEST(GenerationKey, OpensWhatAPeerSealed) {
  const GenerationKey one({"job", 7, 1}, kKey), two({"job", 7, 2}, kKey);
  for (const std::string text : {"", "enough"}) {
    const std::string sealed = one.Seal(2, 3, text);
    EXPECT_EQ(sealed.size(), text.size() + GenerationKey::kBytes);
    EXPECT_EQ(two.Open(1, 3, sealed), text);
  }
}

TEST(GenerationKey, OpensNothingElse) {
  const std::string sealed = GenerationKey({"job", 7, 1}, kKey).Seal(2, 3, "enough");
  EXPECT_FALSE(GenerationKey({"job", 7, 2}, kOther).Open(1, 3, sealed)) << "wrong key";
  EXPECT_FALSE(GenerationKey({"job", 8, 2}, kKey).Open(1, 3, sealed)) << "older generation";
  EXPECT_FALSE(GenerationKey({"bob", 7, 2}, kKey).Open(1, 3, sealed)) << "another job";
  const GenerationKey two({"job", 7, 2}, kKey);
  EXPECT_FALSE(two.Open(4, 3, sealed)) << "another device says it";
  EXPECT_FALSE(two.Open(1, 2, sealed)) << "of another type";
  EXPECT_FALSE(GenerationKey({"job", 7, 4}, kKey).Open(1, 3, sealed)) << "said to another device";
  EXPECT_FALSE(GenerationKey({"job", 7, 1}, kKey).Open(2, 3, sealed)) << "sent back";
  for (const absl::string_view damaged : {"", "enough", "no proof at all, but long enough for one"})
    EXPECT_FALSE(two.Open(1, 3, damaged)) << damaged;
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] ^= 1;
    EXPECT_FALSE(two.Open(1, 3, changed)) << i;
    EXPECT_FALSE(two.Open(1, 3, sealed.substr(0, i))) << i;
  }
}

TEST(GenerationKey, AsksAnotherQuestionEachTime) {
  const GenerationKey key({"job", 7, 1}, kKey);
  EXPECT_EQ(key.Challenge().size(), GenerationKey::kBytes);
  EXPECT_NE(key.Challenge(), key.Challenge());
}

TEST(GenerationKey, ConcealsTagsAlikeForAllThatHaveIt) {
  const GenerationKey one({"job", 7, 1}, kKey), two({"job", 7, 2}, kKey);
  const GenerationKey wrong({"job", 7, 2}, kOther), older({"job", 6, 2}, kKey);
  std::set<uint64_t> seen;
  for (uint64_t tag = 0; tag < 10'000; ++tag) {
    const uint64_t concealed = one.Conceal(tag);
    EXPECT_EQ(concealed, two.Conceal(tag));
    EXPECT_NE(concealed, wrong.Conceal(tag));
    EXPECT_NE(concealed, older.Conceal(tag));
    seen.insert(concealed);
  }
  EXPECT_EQ(seen.size(), 10'000);
}

TEST(GenerationKey, WithoutOneAllIsAsItIs) {
  const GenerationKey none({"job", 7, 1}, "");
  EXPECT_EQ(none.Challenge(), "");
  EXPECT_EQ(none.Seal(2, 3, "enough"), "enough");
  EXPECT_EQ(none.Open(2, 3, "enough"), "enough");
  EXPECT_EQ(none.Conceal(~uint64_t{0}), ~uint64_t{0});
}

TEST(GenerationKey, IsOfThirtyTwoBytes) {
  EXPECT_EQ(GenerationKey::Check(kKey), absl::OkStatus());
  EXPECT_EQ(GenerationKey::Check(""), absl::OkStatus());
  EXPECT_EQ(GenerationKey::Check("short"),
            absl::InvalidArgumentError("transport_key: 5 bytes, not 32"));
}

}  // namespace
}  // namespace stagewright
