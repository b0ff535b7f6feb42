#include "common/artifacts/store/s3_page.h"

#include <functional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace stagewright {
namespace {

// Hands what stands in each element of the name to `take`. In texts of XML there is no "<", and
// none of these elements lies in one of its own name.
void ForEach(absl::string_view xml, absl::string_view name,
             const std::function<void(absl::string_view)>& take) {
  const std::string open = absl::StrCat("<", name, ">"), close = absl::StrCat("</", name, ">");
  for (size_t at = xml.find(open); at != xml.npos; at = xml.find(open, at)) {
    const size_t from = at + open.size(), end = xml.find(close, from);
    if (end == xml.npos) return;
    take(xml.substr(from, end - from));
    at = end + close.size();
  }
}

std::string TextOf(absl::string_view xml) {
  return absl::StrReplaceAll(
      xml, {{"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&apos;", "'"}});
}

}  // namespace

absl::StatusOr<S3Page> ParseS3Page(const std::string& xml) {
  const size_t begin = xml.find("<ListBucketResult"), end = xml.find("</ListBucketResult>");
  if (begin == xml.npos || end == xml.npos || end < begin)
    return absl::FailedPreconditionError("the answer is no list of a bucket's objects");
  const absl::string_view list = absl::string_view(xml).substr(begin, end - begin);
  S3Page page;
  const auto add = [&page](absl::string_view key) { page.keys.push_back(TextOf(key)); };
  ForEach(list, "Contents", [&](absl::string_view object) { ForEach(object, "Key", add); });
  ForEach(list, "CommonPrefixes", [&](absl::string_view some) { ForEach(some, "Prefix", add); });
  ForEach(list, "NextContinuationToken", [&](absl::string_view next) { page.next = TextOf(next); });
  return page;
}

std::string QueryValue(const std::string& value) {
  std::string encoded;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '_' || c == '.' || c == '~') {
      encoded += c;
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", byte);
    }
  }
  return encoded;
}

}  // namespace stagewright
