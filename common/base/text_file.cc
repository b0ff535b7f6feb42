#include "common/base/text_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/strip.h"

namespace stagewright {

absl::string_view WithoutByteOrderMark(absl::string_view text) {
  return absl::StripPrefix(text, "\xef\xbb\xbf");
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::string text;
  char block[1 << 16];
  while (in.read(block, sizeof(block)) || in.gcount() > 0) {
    text.append(block, static_cast<size_t>(in.gcount()));
    if (text.size() > kLargestTextFile)
      return absl::InvalidArgumentError(absl::StrCat(path, " is larger than 64 MiB"));
  }
  if (in.bad()) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  return std::string(WithoutByteOrderMark(text));
}

}  // namespace stagewright
