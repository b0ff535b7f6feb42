// What is printed of names and messages of others must not steer the terminal.
#pragma once

#include <ostream>
#include <streambuf>
#include <string>

namespace stagewright::cli {

// While it lives, control characters that are written to the stream become "\x1b", but for line
// ends, tabs and the one sequence that this program itself begins a progress line with.
class PlainOutput : private std::streambuf {
 public:
  explicit PlainOutput(std::ostream& stream);
  ~PlainOutput() override;
  PlainOutput(const PlainOutput&) = delete;
  PlainOutput& operator=(const PlainOutput&) = delete;

 private:
  int_type overflow(int_type c) override;
  int sync() override;
  void Take(char c);
  void Put(char c) { failed_ |= traits_type::eq_int_type(sink_->sputc(c), traits_type::eof()); }
  void PutEscaped(char c);

  std::ostream& stream_;
  std::streambuf* const sink_;
  bool failed_ = false;  // The sink did not take something.
  std::string held_;     // A beginning of that sequence, or of a character of two bytes.
};

}  // namespace stagewright::cli
