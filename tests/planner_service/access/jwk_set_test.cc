#include "planner_service/access/jwk_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/planner_service/access/signing_key.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;
using testing::KeySet;
using testing::SigningKey;

struct Signed {
  std::string text, signature;
};

Signed Sign(const SigningKey& key) {
  const std::string token = key.Sign("{}", "{}");
  const size_t dot = token.rfind('.');
  Signed made{token.substr(0, dot), ""};
  absl::WebSafeBase64Unescape(token.substr(dot + 1), &made.signature);
  return made;
}

TEST(JwkSet, VerifiesWhatEachKindOfKeySigns) {
  for (const char* algorithm : {"RS256", "ES256", "EdDSA"}) {
    const SigningKey key(algorithm), other(algorithm);
    const auto keys = JwkSet::Parse(KeySet(key.Jwk(R"(, "kid": "one")")));
    ASSERT_TRUE(keys.ok()) << algorithm << keys.status();
    const auto [text, signature] = Sign(key);
    EXPECT_TRUE(keys->Verifies(algorithm, "one", text, signature)) << algorithm;
    EXPECT_TRUE(keys->Verifies(algorithm, std::nullopt, text, signature)) << algorithm;
    EXPECT_FALSE(keys->Verifies(algorithm, "two", text, signature));
    EXPECT_FALSE(keys->Verifies(algorithm, "", text, signature));
    EXPECT_FALSE(keys->Verifies(algorithm, "one", text + "x", signature));
    EXPECT_FALSE(keys->Verifies(algorithm, "one", text, signature + "x"));
    EXPECT_FALSE(keys->Verifies(algorithm, "one", text, ""));
    EXPECT_FALSE(keys->Verifies(algorithm, "one", text, Sign(other).signature));
    for (size_t at : {size_t{0}, signature.size() / 2, signature.size() - 1}) {
      std::string damaged = signature;
      damaged[at] ^= 1;
      EXPECT_FALSE(keys->Verifies(algorithm, "one", text, damaged)) << algorithm << at;
    }
  }
}

TEST(JwkSet, HoldsTheAlgorithmToTheKey) {
  const SigningKey rsa("RS256"), ec("ES256"), ed("EdDSA");
  const auto keys = JwkSet::Parse(KeySet(rsa.Jwk(R"(, "kid": "r")") + "," +
                                         ec.Jwk(R"(, "kid": "e", "alg": "ES256")") + "," +
                                         ed.Jwk(R"(, "kid": "d", "use": "sig")")));
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->size(), 3u);
  const auto [text, signature] = Sign(rsa);
  for (const char* algorithm : {"none", "None", "", "HS256", "RS384", "PS256", "ES256", "EdDSA"})
    EXPECT_FALSE(keys->Verifies(algorithm, "r", text, signature)) << algorithm;
  EXPECT_TRUE(keys->Verifies("RS256", "r", text, signature));
  EXPECT_FALSE(keys->Verifies("RS256", "e", text, signature));
  // Which of three?
  EXPECT_FALSE(keys->Verifies("RS256", std::nullopt, text, signature));
  const auto [ec_text, ec_signature] = Sign(ec);
  EXPECT_TRUE(keys->Verifies("ES256", "e", ec_text, ec_signature));
  // r = s = 0 is no signature, whoever's.
  EXPECT_FALSE(keys->Verifies("ES256", "e", ec_text, std::string(64, '\0')));
}

TEST(JwkSet, PassesOverKeysForOtherPurposes) {
  const SigningKey key("ES256"), rsa("RS256");
  const std::string others =
      R"({"kty": "EC", "crv": "P-521", "x": "AA", "y": "AA"}, {"kty": "new"}, {}, )" +
      rsa.Jwk(R"(, "use": "enc", "kid": "k")") + ", " + rsa.Jwk(R"(, "alg": "RSA-OAEP")");
  const auto keys = JwkSet::Parse(KeySet(others + ", " + key.Jwk(R"(, "kid": "k")")));
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->size(), 1u);
  EXPECT_THAT(std::string(JwkSet::Parse(KeySet(others)).status().message()),
              HasSubstr("no key for signatures by RS256, ES256 or EdDSA"));
}

TEST(JwkSet, NamesTheKeyThatIsWrong) {
  const SigningKey ec("ES256"), rsa("RS256");
  const std::string good = ec.Jwk(R"(, "kid": "k")");
  std::string off_the_curve = ec.Jwk();
  const size_t y = off_the_curve.find("\"y\": \"") + 6;
  off_the_curve[y] = off_the_curve[y] == 'A' ? 'B' : 'A';
  const struct {
    std::string key;
    const char* message;
  } kCases[] = {
      {good, "keys[1]: \"kid\" is given twice"},
      {ec.Jwk(R"(, "d": "AAAA")"), "keys[1]: is private"},
      {R"({"kty": "oct", "k": "c2VjcmV0"})", "keys[1]: is private"},
      {"7", "keys[1]: is no object"},
      {ec.Jwk(R"(, "kid": 7)"), "keys[1]: \"kid\" is no text"},
      {off_the_curve, "keys[1]: is damaged"},
      {R"({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"})", "are not 32 bytes each"},
      {R"({"kty": "EC", "crv": "P-256"})", "\"x\" is no base64url"},
      {R"({"kty": "OKP", "crv": "Ed25519", "x": "AAAA"})", "\"x\" is not 32 bytes"},
      {R"({"kty": "RSA", "e": "AQAB", "n": "wQ=="})", "\"n\" is no base64url"},
      {R"({"kty": "RSA", "e": "AQAB", "n": ")" + testing::Base64Url(std::string(2000, 'x')) + "\"}",
       "more than 8192 bits"},
      {SigningKey("RS256", 1024).Jwk(), "keys[1]: fewer than 2048 bits"},
      {absl::StrReplaceAll(rsa.Jwk(), {{"AQAB", "AQ"}}), "keys[1]: is damaged"},
      {R"({"kty": "EC", "kty": "EC"})", "names a field twice"},
  };
  for (const auto& [key, message] : kCases) {
    const absl::Status status = JwkSet::Parse(KeySet(absl::StrCat(good, ", ", key))).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << key;
  }
}

TEST(JwkSet, RefusesTextsThatAreNoSet) {
  for (const char* text : {"", "[]", "{}", R"({"keys": {}})", R"({"keys": []})", "nonsense"})
    EXPECT_EQ(JwkSet::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_THAT(std::string(JwkSet::Parse(std::string(2 << 20, ' ')).status().message()),
              HasSubstr("larger than 1 MiB"));
  std::string many = "{}";
  for (int i = 0; i < 256; ++i) many += ",{}";
  EXPECT_THAT(std::string(JwkSet::Parse(KeySet(many)).status().message()),
              HasSubstr("more than 256 keys"));
}

}  // namespace
}  // namespace stagewright
