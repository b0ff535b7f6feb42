#include "clients/cli/plain_output.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"

namespace stagewright::cli {
namespace {

// Back to the beginning of the line, and erase it.
constexpr std::string_view kBeginLine = "\r\033[K";
// U+0080 to U+009F are control characters of two bytes, of which this is the first.
constexpr char kTwoBytes = '\xc2';

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

}  // namespace

PlainOutput::PlainOutput(std::ostream& stream) : stream_(stream), sink_(stream.rdbuf(this)) {}

PlainOutput::~PlainOutput() {
  for (char c : held_) PutEscaped(c);
  stream_.rdbuf(sink_);
}

std::streambuf::int_type PlainOutput::overflow(int_type c) {
  if (!traits_type::eq_int_type(c, traits_type::eof())) Take(traits_type::to_char_type(c));
  return failed_ ? traits_type::eof() : traits_type::not_eof(c);
}

int PlainOutput::sync() { return sink_->pubsync(); }

void PlainOutput::PutEscaped(char c) {
  for (char digit : absl::StrFormat("\\x%02x", static_cast<unsigned char>(c))) Put(digit);
}

void PlainOutput::Take(char c) {
  if (!held_.empty() && held_[0] == kTwoBytes) {
    const bool control = static_cast<unsigned char>(c) < 0xa0;
    held_.clear();
    if (control) {
      PutEscaped(kTwoBytes);
      PutEscaped(c);
    } else {
      Put(kTwoBytes);
      Put(c);
    }
    return;
  }
  held_ += c;
  if (held_ == kBeginLine) {
    for (char own : held_) Put(own);
    held_.clear();
    return;
  }
  if (kBeginLine.substr(0, held_.size()) == held_ || held_[0] == kTwoBytes) return;
  // It is no such sequence: all but the last byte are control characters, or what followed one.
  const std::string text = std::exchange(held_, "");
  for (size_t i = 0; i + 1 < text.size(); ++i)
    IsControl(text[i]) ? PutEscaped(text[i]) : Put(text[i]);
  const char last = text.back();
  if (text.size() > 1 && (last == '\r' || last == kTwoBytes)) {
    held_ = last;
  } else if (last == '\n' || last == '\t' || !IsControl(last)) {
    Put(last);
  } else {
    PutEscaped(last);
  }
}

}  // namespace stagewright::cli
