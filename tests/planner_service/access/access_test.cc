#include "planner_service/access/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/time/clock.h"
#include "tests/planner_service/access/signing_key.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

constexpr char kGetJob[] = "/stagewright.v1.JobService/GetJob";
constexpr char kSubmit[] = "/stagewright.v1.JobService/SubmitJob";
constexpr char kImport[] = "/stagewright.v1.ProfileService/ImportProfiles";
constexpr char kConnect[] = "/stagewright.v1.WorkerService/Connect";
constexpr char kHealth[] = "/grpc.health.v1.Health/Check";

std::string TokenFile(const std::string& text) {
  std::string path = ::testing::TempDir() + "/tokens";
  std::ofstream(path, std::ios::trunc) << text;
  return path;
}

Credentials Token(const std::string& token) { return {"Bearer " + token, {}}; }
Credentials Certificate(const std::string& uri) { return {std::nullopt, {uri}}; }

absl::StatusCode CodeOf(const Access& access, const char* method, const Credentials& credentials) {
  return access.Check(method, credentials).status().code();
}

constexpr absl::StatusCode kOk = absl::StatusCode::kOk;
constexpr absl::StatusCode kWho = absl::StatusCode::kUnauthenticated;
constexpr absl::StatusCode kNo = absl::StatusCode::kPermissionDenied;

TEST(Access, LetsEverybodyDoEverythingWhereNobodyHasToSayWhoTheyAre) {
  const auto access = Access::Open({});
  ASSERT_TRUE(access.ok());
  EXPECT_FALSE((*access)->required());
  for (const char* method : {kGetJob, kSubmit, kImport, kConnect, kHealth})
    EXPECT_EQ(CodeOf(**access, method, {}), kOk) << method;
  EXPECT_TRUE(MayRegister(*(*access)->Identify({}), "w0").ok());
}

TEST(Access, AsksForATokenAndForItsRole) {
  const auto access = Access::Open(
      {TokenFile("viewer-token-0123456 viewer vera\nsubmit-token-0123456 submitter sam lab\n"
                 "oper-token-012345678 operator olga\nwork-token-012345678 worker w0\n"),
       false});
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ(CodeOf(**access, kHealth, {}), kOk);
  EXPECT_EQ(CodeOf(**access, kGetJob, {}), kWho);
  EXPECT_EQ(CodeOf(**access, kGetJob, Token("viewer-token-0123457")), kWho);
  EXPECT_EQ(CodeOf(**access, kGetJob, Token("")), kWho);
  EXPECT_EQ(CodeOf(**access, kGetJob, {"viewer-token-0123456", {}}), kWho);
  EXPECT_EQ(CodeOf(**access, kGetJob, Token("viewer-token-0123456")), kOk);
  EXPECT_EQ(CodeOf(**access, kSubmit, Token("viewer-token-0123456")), kNo);
  EXPECT_EQ(CodeOf(**access, kSubmit, Token("submit-token-0123456")), kOk);
  EXPECT_EQ(CodeOf(**access, kImport, Token("submit-token-0123456")), kNo);
  EXPECT_EQ(CodeOf(**access, kImport, Token("oper-token-012345678")), kOk);
  EXPECT_EQ(CodeOf(**access, kConnect, Token("oper-token-012345678")), kNo);
  EXPECT_EQ(CodeOf(**access, kConnect, Token("work-token-012345678")), kOk);
  EXPECT_EQ(CodeOf(**access, kGetJob, Token("work-token-012345678")), kNo);
  EXPECT_THAT(
      std::string((*access)->Check(kSubmit, Token("viewer-token-0123456")).status().message()),
      HasSubstr("\"vera\" is a viewer; /stagewright.v1.JobService/SubmitJob needs a submitter"));
  // A certificate nobody has looked at says nothing.
  EXPECT_EQ((*access)->Identify(Token("submit-token-0123456"))->tenant, "lab");
}

TEST(Access, TakesTheNameThatACertificateCarries) {
  const auto access = Access::Open({"", true});
  ASSERT_TRUE(access.ok());
  EXPECT_EQ(CodeOf(**access, kSubmit, Certificate("stagewright://submitter/sam")), kOk);
  EXPECT_EQ(CodeOf(**access, kSubmit, Certificate("stagewright://viewer/sam")), kNo);
  for (const char* uri : {"", "stagewright://", "stagewright://operator", "stagewright://operator/",
                          "stagewright://king/sam", "spiffe://operator/sam",
                          "stagewright://operator/sam/lab/more", "STAGEWRIGHT://operator/sam"}) {
    EXPECT_EQ(CodeOf(**access, kSubmit, Certificate(uri)), kWho) << uri;
  }
  EXPECT_EQ((*access)->Identify(Certificate("stagewright://submitter/sam/lab"))->tenant, "lab");
  // A token that nobody has asked for says nothing.
  EXPECT_EQ(CodeOf(**access, kSubmit, Token("submit-token-0123456")), kWho);
}

TEST(Access, KnowsAPlannersCertificate) {
  EXPECT_TRUE(IsPlanner({"spiffe://x", "stagewright://planner/p0"}));
  for (const char* uri :
       {"stagewright://planner/", "stagewright://planner", "stagewright://planner/a/b",
        "stagewright://operator/planner", "xstagewright://planner/p0"})
    EXPECT_FALSE(IsPlanner({uri})) << uri;
  EXPECT_FALSE(IsPlanner({}));
  // By itself it may nothing.
  const auto access = Access::Open({"", true, {}});
  EXPECT_EQ(CodeOf(**access, kGetJob, Certificate("stagewright://planner/p0")), kWho);
}

TEST(Access, ReadsAChangedFileAndKeepsWhatItKnowsIfThatIsWrong) {
  const std::string path = TokenFile("first-token-01234567 viewer vera\n");
  const auto access = Access::Open({path, false});
  ASSERT_TRUE(access.ok());
  TokenFile("second-token-0123456 viewer vera\n# other length\n");
  EXPECT_EQ(CodeOf(**access, kGetJob, Token("first-token-01234567")), kWho);
  EXPECT_EQ(CodeOf(**access, kGetJob, Token("second-token-0123456")), kOk);
  TokenFile("nonsense\n");
  EXPECT_EQ(CodeOf(**access, kGetJob, Token("second-token-0123456")), kOk);
}

TEST(Access, TakesSignedTokensBesideThoseOfTheFile) {
  const testing::SigningKey key("EdDSA");
  const std::string keys = ::testing::TempDir() + "/access_jwks";
  std::ofstream(keys, std::ios::trunc) << testing::KeySet(key.Jwk());
  const JwtOptions jwt = {keys, "issuer", "planner", "roles", {}};
  const auto signed_token = [&](absl::Time expires, const char* role) {
    return key.Sign(R"({"alg": "EdDSA"})",
                    absl::StrCat(R"({"iss": "issuer", "aud": "planner", "sub": "sam", "exp": )",
                                 absl::ToUnixSeconds(expires), R"(, "roles": [")", role, "\"]}"));
  };
  const absl::Time later = absl::Now() + absl::Hours(1), earlier = absl::Now() - absl::Hours(1);
  const auto access = Access::Open({TokenFile("viewer-token-0123456 viewer vera\n"), false, jwt});
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ(CodeOf(**access, kGetJob, Token("viewer-token-0123456")), kOk);
  EXPECT_EQ(CodeOf(**access, kSubmit, Token(signed_token(later, "submitter"))), kOk);
  EXPECT_EQ(CodeOf(**access, kImport, Token(signed_token(later, "submitter"))), kNo);
  EXPECT_EQ(CodeOf(**access, kSubmit, Token(signed_token(later, "none"))), kNo);
  EXPECT_EQ(CodeOf(**access, kSubmit, Token(signed_token(earlier, "submitter"))), kWho);
  EXPECT_EQ(CodeOf(**access, kHealth, {}), kOk);
  // Alone, without a file of tokens.
  const auto alone = Access::Open({"", false, jwt});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_TRUE((*alone)->required());
  EXPECT_EQ(CodeOf(**alone, kGetJob, {}), kWho);
  EXPECT_EQ(CodeOf(**alone, kGetJob, Token("viewer-token-0123456")), kWho);
  EXPECT_EQ((*alone)->Identify(Token(signed_token(later, "operator")))->user, "sam");
  // What belongs together.
  EXPECT_THAT(
      std::string(Access::Open({"", false, {"", "issuer", "", "roles", {}}}).status().message()),
      HasSubstr("need --jwt-keys"));
}

TEST(Access, RefusesAFileThatIsNone) {
  EXPECT_EQ(Access::Open({"/nowhere/tokens", false}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const std::string path = TokenFile("a-token-0123456789 king arthur\n");
  EXPECT_THAT(std::string(Access::Open({path, false}).status().message()),
              HasSubstr(path + ": line 1: the role \"king\""));
}

TEST(Access, LetsOnlyTheOwnerAndOperatorsChangeAJob) {
  const Caller sam{Role::kSubmitter, "sam", ""}, olga{Role::kOperator, "olga", ""};
  EXPECT_TRUE(MayChangeJob(sam, "jobs/1", "sam", "").ok());
  EXPECT_TRUE(MayChangeJob(olga, "jobs/1", "sam", "").ok());
  EXPECT_EQ(MayChangeJob(sam, "jobs/1", "sam", "lab").code(), kNo);
  EXPECT_EQ(MayChangeJob(sam, "jobs/1", "", "").code(), kNo);
  EXPECT_THAT(std::string(MayChangeJob(sam, "jobs/1", "vera", "").message()),
              HasSubstr("jobs/1 is that of \"vera\""));
}

TEST(Access, LetsAWorkerSpeakUnderItsOwnNameOnly) {
  EXPECT_TRUE(MayRegister({Role::kWorker, "w0", ""}, "w0").ok());
  EXPECT_TRUE(MayRegister({Role::kWorker, "*", ""}, "w7").ok());
  EXPECT_EQ(MayRegister({Role::kWorker, "w0", ""}, "w1").code(), kNo);
  EXPECT_EQ(MayRegister({Role::kSubmitter, "w0", ""}, "w0").code(), kNo);
}

}  // namespace
}  // namespace stagewright
