#include "common/base/one_line.h"

#include <gtest/gtest.h>

#include <string>

namespace stagewright {
namespace {

TEST(OneLineTest, KeepsWhatIsReadable) {
  EXPECT_TRUE(OneLine(absl::OkStatus()).ok());
  const absl::Status status = OneLine(absl::NotFoundError("a\n\tb \x7f \xc3\xa9 \xc2\x9bm"));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(status.message()), "a??b ? \xc3\xa9 ?m");
  const std::string many(999, 'x');
  EXPECT_EQ(std::string(OneLine(absl::NotFoundError(many + "\xc3\xa9y")).message()), many + "...");
}

TEST(OneLineTest, ControlCharactersHaveOneByteInAsciiAndTwoInLatin) {
  EXPECT_EQ(ControlCharacterAt("a\n", 0), 0u);
  EXPECT_EQ(ControlCharacterAt("a\n", 1), 1u);
  EXPECT_EQ(ControlCharacterAt("\x7f", 0), 1u);
  EXPECT_EQ(ControlCharacterAt(std::string(1, '\0'), 0), 1u);
  for (const char* control : {"\xc2\x80", "\xc2\x85", "\xc2\x9b", "\xc2\x9f"}) {
    EXPECT_EQ(ControlCharacterAt(control, 0), 2u);
    EXPECT_EQ(ControlCharacterAt(control, 1), 0u) << "the second byte is none by itself";
    EXPECT_TRUE(HasControlCharacter(std::string("name") + control));
  }
}

TEST(OneLineTest, NothingThatIsShownIsAControlCharacter) {
  // U+00A0 and U+00DB begin or end with bytes of control characters; the last ends within one.
  for (const char* text :
       {"", " plain ~", "\xc2\xa0", "\xc3\x9b", "k\xc3\xb6ln \xe2\x80\x93", "a\xc2"})
    EXPECT_FALSE(HasControlCharacter(text)) << text;
}

}  // namespace
}  // namespace stagewright
