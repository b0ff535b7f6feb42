// Tokens, sets of keys, and the claims of tokens that are genuine; which of the three the first
// byte says. No token is believed here: nobody has the key of the set.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "planner_service/access/jwk_set.h"
#include "planner_service/access/jwt.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

// The keys of RFC 7515, appendix A.3, and RFC 8037, appendix A.2.
constexpr const char* kKeySets[] = {
    R"({"keys": [{"kty": "EC", "crv": "P-256", "kid": "e",
                  "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
                  "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]})",
    R"({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "d",
                  "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]})"};

void LookAtToken(const std::string& token) {
  using namespace stagewright;
  static const JwkSet keys[] = {JwkSet::Parse(kKeySets[0]).value(),
                                JwkSet::Parse(kKeySets[1]).value()};
  for (const JwkSet& set : keys) {
    const auto claims = SignedClaims(token, set);
    fuzz::CheckRefusal(claims.status());
    // The token of RFC 8037, appendix A.4, is the only one that is signed.
    if (claims.ok() && *claims != "Example of Ed25519 signing") fuzz::Fail("believes a stranger");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  const std::string text(fuzz::Text(data, size));
  if (text.empty()) return 0;
  const std::string rest = text.substr(1);
  if (text[0] == 'k') {
    const auto keys = JwkSet::Parse(rest);
    fuzz::CheckRefusal(keys.status());
    if (keys.ok() && keys->Verifies("ES256", "e", "text", rest)) fuzz::Fail("believes a stranger");
  } else if (text[0] == 'c') {
    static const JwtClaims claims =
        JwtClaims::Open({"keys", "issuer", "planner", "roles.list", {"admins=operator"}}).value();
    const auto caller = claims.CallerOf(rest, absl::FromUnixSeconds(1500));
    fuzz::CheckRefusal(caller.status());
    if (caller.ok() && (caller->role != Role::kOperator || caller->user.empty() ||
                        std::any_of(caller->user.begin(), caller->user.end(), absl::ascii_iscntrl)))
      fuzz::Fail("a caller who is none");
  } else {
    LookAtToken(rest);
  }
  return 0;
}
