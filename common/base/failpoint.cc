#include "common/base/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace stagewright {
namespace {

constexpr char kVariable[] = "STAGEWRIGHT_FAILPOINTS";

struct Armed {
  std::string name;
  int64_t at = 0;  // How often it is reached until the program dies.
};

Armed ReadVariable() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return {};
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(text, absl::MaxSplits(":crash@", 1));
  Armed armed = {parts.first};
  if (!armed.name.empty() && absl::SimpleAtoi(parts.second, &armed.at) && armed.at > 0)
    return armed;
  std::fprintf(stderr, "%s=%s: expected NAME:crash@COUNT\n", kVariable, text);
  std::abort();
}

}  // namespace

void ReachFailpoint(const char* name) {
  static const Armed armed = ReadVariable();
  static std::atomic<int64_t> reached = 0;
  if (armed.name != name || ++reached != armed.at) return;
  std::fprintf(stderr, "failpoint %s: crash\n", name);
  kill(getpid(), SIGKILL);
}

}  // namespace stagewright
