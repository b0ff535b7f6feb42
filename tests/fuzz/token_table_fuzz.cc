// Files of tokens. No refusal shows a word of the file that may be a token, and who is found has a
// role.
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "planner_service/access/token_table.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  const std::string text(fuzz::Text(data, size));
  const auto table = TokenTable::Parse(text);
  fuzz::CheckRefusal(table.status());
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty())) {
    if (word.size() < 16) continue;
    if (!table.ok() && absl::StrContains(table.status().message(), word))
      fuzz::Fail("a refusal that shows a token");
    if (!table.ok()) continue;
    const auto caller = table->Find(word);
    if (caller.has_value() && (caller->role == Role::kAnybody || caller->user.empty()))
      fuzz::Fail("a caller who is none");
  }
  return 0;
}
