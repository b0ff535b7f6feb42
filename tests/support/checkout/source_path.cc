#include "tests/support/checkout/source_path.h"

#include "absl/strings/str_cat.h"

namespace stagewright::testing {

std::string SourcePath(absl::string_view path) {
  return absl::StrCat(STAGEWRIGHT_SOURCE_DIR, "/", path);
}

}  // namespace stagewright::testing
