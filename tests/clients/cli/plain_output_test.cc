#include "clients/cli/plain_output.h"

#include <gtest/gtest.h>

#include <sstream>

namespace stagewright::cli {
namespace {

std::string Printed(const std::string& text) {
  std::ostringstream out;
  {
    PlainOutput plain(out);
    out << text << std::flush;
  }
  return out.str();
}

TEST(PlainOutput, LeavesTextAsItIs) {
  for (const char* text : {"", "job  name\n", "a\tb\n", "k\xc3\xb6ln \xc2\xb5s \xe2\x80\x93\n"})
    EXPECT_EQ(Printed(text), text);
}

TEST(PlainOutput, WritesControlCharactersOut) {
  EXPECT_EQ(Printed("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(Printed("\x07\x7f\x01"), "\\x07\\x7f\\x01");
  EXPECT_EQ(Printed("done\rfake"), "done\\x0dfake");
  EXPECT_EQ(Printed("\xc2\x9b"
                    "2J"),
            "\\xc2\\x9b"
            "2J");
  EXPECT_EQ(Printed("end\r"), "end\\x0d");
  EXPECT_EQ(Printed("\r\033[2J\n"), "\\x0d\\x1b[2J\n");
  EXPECT_EQ(Printed("\r\r\033[K\xc2\x9b"), "\\x0d\r\033[K\\xc2\\x9b");
}

TEST(PlainOutput, LetsTheProgressLineBegin) {
  EXPECT_EQ(Printed("\r\033[K[==  ] step 1"), "\r\033[K[==  ] step 1");
  EXPECT_EQ(Printed("\r\033[K\r\033[K"), "\r\033[K\r\033[K");
}

TEST(PlainOutput, GivesTheStreamBack) {
  std::ostringstream out;
  { PlainOutput plain(out); }
  out << "\x1b";
  EXPECT_EQ(out.str(), "\x1b");
}

}  // namespace
}  // namespace stagewright::cli
