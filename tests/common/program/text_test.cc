#include "common/program/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "common/validation/validate.h"
#include "tests/support/random.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

constexpr char kText[] = R"(program 1
batch samples=8 training=0
stage 0 nodes=5,0-2,9 replicated=3 devices=0,4 micro_batch=4 backward=0
stage 1 nodes=6 replicated=- devices=1 micro_batch=8 backward=1
channel 0 stages=0>1 devices=0>1 values=2.0,9.1 gradients=9.1 bytes=12/8 backward=1
channel 1 stages=0>1 devices=4>1 values=- gradients=- bytes=0/0 backward=0
reduction 0 stages=0 devices=0,4 parameters=1-3 bytes=4096
device 0 resident=1048576
prologue:
0 F0[0,4) +1
body:
0 RA1[0,4)@0
1 F0[0,4) <0,2 +100 -20
2 AR0@0 <0,1^3,1^12 -3
epilogue:
0 OS0
device 1 resident=0
)";

TEST(ParseProgram, ReadsEveryField) {
  const auto program = ParseProgram(kText);
  ASSERT_EQ(program.status(), absl::OkStatus());
  EXPECT_EQ(ToText(*program), kText);
  EXPECT_EQ(program->mini_batch, 8);
  EXPECT_FALSE(program->training);
  EXPECT_THAT(program->stages[0].nodes,
              ::testing::ElementsAre(NodeId(5), NodeId(0), NodeId(1), NodeId(2), NodeId(9)));
  EXPECT_EQ(program->channels[0].gradient_bytes_per_sample, 8);
  EXPECT_TRUE(program->channels[0].has_gradient);
  EXPECT_EQ(program->reductions[0].parameters.size(), 3u);
  EXPECT_THAT(program->reductions[0].stages, ::testing::ElementsAre(StageId(0)));
  EXPECT_EQ(program->devices[0].prologue.size(), 1u);
  EXPECT_EQ(program->devices[0].body[1].after, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(program->devices[0].body[1].acquire, 100);
  EXPECT_EQ(program->devices[0].body[2].release, 3);
  EXPECT_EQ(program->devices[0].body[2].after, std::vector<int32_t>{0});
  EXPECT_EQ(program->devices[0].body[2].after_marks, (std::vector<PassMark>{{1, 3}, {1, 12}}));
}

TEST(ParseProgram, IgnoresEmptyLinesAndSpaces) {
  const auto program = ParseProgram("\n" + absl::StrReplaceAll(kText, {{"\n", "  \n\n"}}));
  ASSERT_EQ(program.status(), absl::OkStatus());
  EXPECT_EQ(ToText(*program), kText);
}

// Replaces the first `from` of the text and expects an error that contains `message`.
void ExpectError(const std::string& from, const std::string& to, const std::string& message) {
  std::string text = kText;
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, from.size(), to);
  const absl::Status status = ParseProgram(text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(ParseProgram, NamesTheLine) {
  ExpectError("program 1", "program 2", "line 1: a program starts with \"program 1\"");
  ExpectError("samples=8", "samples=x", "line 2: samples= is missing or not a number");
  ExpectError("training=0", "training=2", "line 2: training= is not 0 or 1");
  ExpectError("stage 1", "stage 2", "line 4: expected stage 1");
  ExpectError("nodes=5,0-2,9", "nodes=5,2-0", "line 3: \"2-0\" is not valid in a \"stage\" line");
  ExpectError("nodes=5,0-2,9", "nodes=0-2000000000", "line 3: \"0-2000000000\"");
  ExpectError("nodes=6 ", "", "line 4: nodes= is missing");
  ExpectError("stages=0>1", "stages=0-1", "line 5: \"0-1\" is not valid in a \"channel\" line");
  ExpectError("values=2.0", "values=2", "line 5: \"2\" is not valid");
  ExpectError("bytes=4096", "bytes=99999999999999999999", "line 7: bytes= is missing");
  ExpectError("0 F0[0,4) +1", "0 G0[0,4) +1", "line 10: \"G0[0,4)\" is not an action");
  ExpectError("1 F0[0,4) <0,2", "7 F0[0,4) <0,2", "line 13: expected action 1, not \"7\"");
  ExpectError("<0,2", "<0,a", "line 13: \"<0,a\" is not <after");
  ExpectError("epilogue:", "body:", "line 15: the section is there twice");
  ExpectError("device 0 resident=1048576\n", "", "line 8: a section before the first device");
  ExpectError("device 1 resident=0", "machine 1", "line 17: expected action 1, not \"machine\"");
  EXPECT_EQ(ParseProgram("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ParseProgram, NeverCrashesOnDamagedText) {
  testing::Rng rng(3);
  const std::string good = kText;
  for (int i = 0; i < 5000; ++i) {
    std::string text = good;
    for (int64_t edits = testing::Uniform(rng, 1, 4); edits > 0; --edits) {
      const auto at =
          static_cast<size_t>(testing::Uniform(rng, 0, static_cast<int64_t>(text.size()) - 1));
      switch (testing::Uniform(rng, 0, 2)) {
        case 0:
          text.erase(at, static_cast<size_t>(testing::Uniform(rng, 1, 9)));
          break;
        case 1:
          text[at] = static_cast<char>(testing::Uniform(rng, 1, 126));
          break;
        default:
          text.insert(at, text.substr(at / 2, 7));
      }
      if (text.empty()) break;
    }
    const auto program = ParseProgram(text);
    // What parses is checked before use and prints as something that parses to the same.
    if (!program.ok()) continue;
    Validate(*program, {}).IgnoreError();
    EXPECT_EQ(ToText(*ParseProgram(ToText(*program))), ToText(*program));
  }
}

}  // namespace
}  // namespace stagewright
