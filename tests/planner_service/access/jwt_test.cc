#include "planner_service/access/jwt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_replace.h"
#include "tests/planner_service/access/signing_key.h"

namespace stagewright {
namespace {

using testing::Base64Url;
using ::testing::HasSubstr;
using testing::KeySet;
using ::testing::Not;
using testing::SigningKey;

constexpr char kHeader[] = R"({"alg": "RS256", "kid": "k", "typ": "JWT"})";
constexpr char kClaims[] = R"({"iss": "https://id.example.org", "aud": "stagewright", "sub": "sam",
                               "exp": 2000, "nbf": 1000, "roles": ["submitter"]})";
const absl::Time kNow = absl::FromUnixSeconds(1500);

// "exp": 2000 -> "exp": 9.
std::string With(const std::string& from, const std::string& to) {
  std::string changed = absl::StrReplaceAll(kClaims, {{from, to}});
  EXPECT_NE(changed, kClaims) << from;
  return changed;
}

class JwtTest : public ::testing::Test {
 protected:
  JwtTest() {
    WriteKeys(KeySet(key_.Jwk(R"(, "kid": "k")")));
    options_.keys_file = path_;
    options_.issuer = "https://id.example.org";
    options_.audience = "stagewright";
  }
  void WriteKeys(const std::string& text) { std::ofstream(path_, std::ios::trunc) << text; }

  absl::StatusOr<Caller> CallerOf(const std::string& token) {
    if (reader_ == nullptr) reader_ = JwtReader::Open(options_).value();
    return reader_->CallerOf(token, kNow);
  }
  absl::StatusOr<Caller> CallerWith(const std::string& claims) {
    return CallerOf(key_.Sign(kHeader, claims));
  }
  // Damaged and strange tokens are all told the same.
  void ExpectUnknown(const std::string& token) {
    const absl::Status status = CallerOf(token).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << token;
    EXPECT_EQ(status.message(), "the token is not known") << token.substr(0, 1000);
  }
  void ExpectWrong(const std::string& claims, const std::string& what) {
    const absl::Status status = CallerWith(claims).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << claims;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what)) << claims;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("example.org")));
  }

  const std::string path_ = ::testing::TempDir() + "/jwks.json";
  const SigningKey key_{"RS256"};
  JwtOptions options_;
  std::unique_ptr<JwtReader> reader_;
};

TEST_F(JwtTest, SaysWhoTheSubjectIs) {
  const auto caller = CallerWith(kClaims);
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->user, "sam");
  EXPECT_EQ(caller->role, Role::kSubmitter);
  EXPECT_EQ(caller->tenant, "");
  EXPECT_TRUE(CallerOf(key_.Sign(R"({"alg": "RS256"})", kClaims)).ok());  // The only key.
}

TEST_F(JwtTest, SaysWhoseTenantTheSubjectIs) {
  const auto with = [](const std::string& tenant) {
    return With("\"sub\"", "\"org\": {\"team\": " + tenant + "}, \"sub\"");
  };
  EXPECT_EQ(CallerWith(with("\"vision\""))->tenant, "") << "nobody said that this claim names it";
  options_.tenant_claim = "org.team";
  reader_.reset();
  EXPECT_EQ(CallerWith(with("\"vision\""))->tenant, "vision");
  ExpectWrong(kClaims, "the token does not name its user's tenant (org.team)");
  EXPECT_EQ(CallerWith(With("[\"submitter\"]", "[\"worker\"]"))->tenant, "") << "holds no devices";
  for (const char* wrong :
       {"\"\"", "\"*\"", "7", "[\"vision\"]", "null", "\"a\\nb\"", "\"a\\u009bb\""})
    ExpectWrong(with(wrong), "has a tenant that is no name");
}

TEST_F(JwtTest, TakesOnlyWhatTheKeySigned) {
  const std::string token = key_.Sign(kHeader, kClaims);
  const size_t first = token.find('.'), second = token.rfind('.');
  const std::string header = token.substr(0, first), signature = token.substr(second);
  const std::string claims = token.substr(first, second - first);
  ExpectUnknown(SigningKey("RS256").Sign(kHeader, kClaims));
  ExpectUnknown(header + "." + Base64Url(With("submitter", "operator")) + signature);
  ExpectUnknown(Base64Url(R"({"alg": "none"})") + claims + ".");
  ExpectUnknown(Base64Url(R"({"alg": "none", "kid": "k"})") + claims + signature);
  ExpectUnknown(key_.Sign(R"({"alg": "RS512", "kid": "k"})", kClaims));
  ExpectUnknown(key_.Sign(R"({"alg": "RS256", "kid": "other"})", kClaims));
  ExpectUnknown(key_.Sign(R"({"alg": "RS256", "kid": 7})", kClaims));
  ExpectUnknown(key_.Sign(R"({"alg": "RS256", "alg": "RS256", "kid": "k"})", kClaims));
  ExpectUnknown(
      key_.Sign(R"({"alg": "RS256", "kid": "k", "crit": ["b64"], "b64": false})", kClaims));
  ExpectUnknown(key_.Sign(R"({"alg": ["RS256"], "kid": "k"})", kClaims));
  ExpectUnknown(key_.Sign("nonsense", kClaims));
  // A key that comes along with the token is nobody's.
  const SigningKey own("RS256");
  ExpectUnknown(own.Sign(R"({"alg": "RS256", "jwk": )" + own.Jwk() + "}", kClaims));
}

TEST_F(JwtTest, TakesNoPublicKeyForASecret) {
  for (const std::string& secret : {key_.PublicPem(), key_.Jwk(), std::string()}) {
    for (const char* header : {R"({"alg": "HS256"})", R"({"alg": "HS256", "kid": "k"})",
                               R"({"alg": "RS256", "kid": "k"})"})
      ExpectUnknown(testing::SignHs256(secret, header, kClaims));
  }
}

TEST_F(JwtTest, TakesNoTextThatIsNoToken) {
  const std::string token = key_.Sign(kHeader, kClaims);
  for (size_t size = 0; size < token.size(); ++size) ExpectUnknown(token.substr(0, size));
  ExpectUnknown(token + "A");
  ExpectUnknown(token + "=");
  ExpectUnknown(token + ".AAAA");
  ExpectUnknown("." + token);
  ExpectUnknown("..");
  ExpectUnknown(std::string(1 << 20, '.'));
  ExpectUnknown(std::string(1 << 20, 'A'));
  // Signed, and larger than a token may be.
  ExpectUnknown(key_.Sign(kHeader, With("sam", std::string(8192, 's'))));
}

TEST_F(JwtTest, HoldsTheClaimsToTheirTimes) {
  EXPECT_TRUE(CallerWith(With("2000", "1440.5")).ok());  // Within the leeway.
  ExpectWrong(With("2000", "1440"), "has expired");
  ExpectWrong(With("2000", "-1e300"), "has expired");
  ExpectWrong(With("2000", "\"2000\""), "when it expires");
  ExpectWrong(With("2000", "null"), "when it expires");
  ExpectWrong(With("\"exp\"", "\"expires\""), "when it expires");
  EXPECT_TRUE(CallerWith(With("1000", "1560")).ok());
  ExpectWrong(With("1000", "1561"), "not valid yet");
  ExpectWrong(With("1000", "\"1000\""), "not valid yet");
  EXPECT_TRUE(CallerWith(With("\"nbf\": 1000,", "")).ok());
}

TEST_F(JwtTest, HoldsTheClaimsToIssuerAudienceAndSubject) {
  ExpectWrong(With("id.example", "evil.example"), "another issuer");
  ExpectWrong(With("\"iss\"", "\"issuer\""), "another issuer");
  ExpectWrong(With("\"stagewright\"", "\"other\""), "another audience");
  ExpectWrong(With("\"stagewright\"", "[\"other\", 7, [\"stagewright\"]]"), "another audience");
  ExpectWrong(With("\"aud\": \"stagewright\",", ""), "another audience");
  EXPECT_TRUE(CallerWith(With("\"stagewright\"", "[\"other\", \"stagewright\"]")).ok());
  for (const char* subject :
       {"\"\"", "7", "\"*\"", "\"a\\u0000b\"", "\"a\\nb\"", "\"a\\u009bb\"", "null"})
    ExpectWrong(With("\"sam\"", subject), "whose it is");
  ExpectWrong(With("\"sam\"", "\"" + std::string(129, 's') + "\""), "whose it is");
  ExpectWrong(With("\"sam\",", "\"sam\", \"sub\": \"olga\","), "twice");
  ExpectWrong("[]", "no JSON object");
}

TEST_F(JwtTest, GivesTheHighestRoleThatTheClaimNames) {
  const auto role = [&](const std::string& roles) {
    const auto caller = CallerWith(With("[\"submitter\"]", roles));
    return caller.ok() ? std::string(RoleName(caller->role))
                       : absl::StatusCodeToString(caller.status().code());
  };
  EXPECT_EQ(role(R"(["viewer", "operator", "submitter"])"), "operator");
  EXPECT_EQ(role(R"("viewer")"), "viewer");
  EXPECT_EQ(role(R"(["worker"])"), "worker");
  EXPECT_EQ(role(R"(["worker", "viewer"])"), "viewer");
  for (const char* none : {"[]", "null", R"(["king"])", R"("viewer operator")", R"([["viewer"]])",
                           R"({"viewer": true})", R"(["anybody"])", "7"})
    EXPECT_EQ(role(none), "PERMISSION_DENIED") << none;
}

TEST_F(JwtTest, FindsRolesWhereTheProviderPutsThem) {
  options_.roles_claim = "realm_access.roles";
  options_.role_values = {"ml=submitter", "cn=admins,dc=x=operator"};
  const auto role = [&](const std::string& claim) {
    const auto caller = CallerWith(With("\"roles\": [\"submitter\"]", claim));
    return caller.ok() ? std::string(RoleName(caller->role)) : "";
  };
  EXPECT_EQ(role(R"("realm_access": {"roles": ["ml"]})"), "submitter");
  EXPECT_EQ(role(R"("realm_access": {"roles": ["ml", "cn=admins,dc=x"]})"), "operator");
  EXPECT_EQ(role(R"("realm_access.roles": ["ml"])"), "submitter");
  EXPECT_EQ(role(R"("realm_access": {"roles": ["operator"]})"), "");
  EXPECT_EQ(role(R"("realm_access": ["ml"])"), "");
}

TEST_F(JwtTest, FollowsTheFileOfKeys) {
  EXPECT_TRUE(CallerWith(kClaims).ok());
  const SigningKey next("ES256");
  const std::string signed_by_next = next.Sign(R"({"alg": "ES256", "kid": "n"})", kClaims);
  ExpectUnknown(signed_by_next);
  WriteKeys(KeySet(key_.Jwk(R"(, "kid": "k")") + "," + next.Jwk(R"(, "kid": "n")")));
  EXPECT_TRUE(CallerWith(kClaims).ok());
  EXPECT_TRUE(CallerOf(signed_by_next).ok());
  WriteKeys(KeySet(next.Jwk(R"(, "kid": "n")")));
  ExpectUnknown(key_.Sign(kHeader, kClaims));
  WriteKeys("nonsense");
  EXPECT_TRUE(CallerOf(signed_by_next).ok());
}

TEST_F(JwtTest, NamesTheFlagThatIsWrong) {
  const auto refusal = [&] { return std::string(JwtReader::Open(options_).status().message()); };
  options_.role_values = {"ml:submitter"};
  EXPECT_THAT(refusal(), HasSubstr("--jwt-role \"ml:submitter\": expected VALUE=ROLE"));
  options_.role_values = {"ml=king"};
  EXPECT_THAT(refusal(), HasSubstr("--jwt-role \"ml=king\""));
  options_.role_values = {"=viewer"};
  EXPECT_THAT(refusal(), HasSubstr("--jwt-role \"=viewer\""));
  options_.role_values = {};
  options_.roles_claim = "";
  EXPECT_THAT(refusal(), HasSubstr("--jwt-roles-claim is empty"));
  options_.audience = "";
  EXPECT_THAT(refusal(), HasSubstr("--jwt-audience"));
  options_.issuer = "";
  EXPECT_THAT(refusal(), HasSubstr("--jwt-issuer"));
  options_ = {"/nowhere/jwks", "i", "a", "roles", {}};
  EXPECT_THAT(refusal(), HasSubstr("--jwt-keys /nowhere/jwks"));
  WriteKeys("{}");
  options_.keys_file = path_;
  EXPECT_THAT(refusal(), HasSubstr("--jwt-keys " + path_ + ": expected a JSON Web Key Set"));
}

}  // namespace
}  // namespace stagewright
