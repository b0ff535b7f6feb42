#include "planner_service/access/token_table.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace stagewright {
namespace {

constexpr size_t kShortestToken = 16;
constexpr absl::string_view kDigestPrefix = "sha256:";

std::array<uint8_t, 32> DigestOf(absl::string_view token) {
  std::array<uint8_t, 32> digest = {};
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  return digest;
}

absl::StatusOr<std::array<uint8_t, 32>> ReadDigest(absl::string_view word) {
  if (!absl::ConsumePrefix(&word, kDigestPrefix)) {
    if (word.size() < kShortestToken) {
      return absl::InvalidArgumentError(
          absl::StrCat("the token has fewer than ", kShortestToken, " characters"));
    }
    return DigestOf(word);
  }
  std::array<uint8_t, 32> digest = {};
  if (word.size() != 2 * digest.size() ||
      !std::all_of(word.begin(), word.end(), absl::ascii_isxdigit))
    return absl::InvalidArgumentError("sha256: is not followed by 64 hexadecimal digits");
  const std::string bytes = absl::HexStringToBytes(word);
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

absl::StatusOr<Caller> ReadCaller(const std::vector<absl::string_view>& words) {
  if (words.size() < 3 || words.size() > 4)
    return absl::InvalidArgumentError("expected TOKEN ROLE USER [TENANT]");
  const std::optional<Role> role = RoleOf(words[1]);
  if (!role.has_value()) {
    // What is as long as a token may be one, in the wrong place.
    const bool shown = words[1].size() < kShortestToken;
    return absl::InvalidArgumentError(
        absl::StrCat("the role ", shown ? absl::StrCat("\"", words[1], "\" ") : "",
                     "is none of viewer, submitter, operator, worker"));
  }
  return Caller{*role, std::string(words[2]), words.size() == 4 ? std::string(words[3]) : ""};
}

}  // namespace

absl::StatusOr<TokenTable> TokenTable::Parse(absl::string_view text) {
  TokenTable table;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const std::string where = absl::StrCat("line ", number);
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    const auto caller = ReadCaller(words);
    if (!caller.ok()) return Annotate(caller.status(), where);
    const auto digest = ReadDigest(words[0]);
    if (!digest.ok()) return Annotate(digest.status(), where);
    if (std::any_of(table.entries_.begin(), table.entries_.end(),
                    [&](const Entry& entry) { return entry.digest == *digest; }))
      return absl::InvalidArgumentError(absl::StrCat(where, ": the token is given twice"));
    table.entries_.push_back({*digest, *caller});
  }
  if (table.entries_.empty()) return absl::InvalidArgumentError("it has no tokens");
  return table;
}

std::optional<Caller> TokenTable::Find(absl::string_view token) const {
  const Digest digest = DigestOf(token);
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0) found = &entry;
  }
  return found == nullptr ? std::nullopt : std::optional(found->caller);
}

}  // namespace stagewright
