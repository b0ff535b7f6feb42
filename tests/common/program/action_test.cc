#include "common/program/action.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

TEST(ParseAction, IsTheInverseOfToString) {
  const std::string texts[] = {
      "F2[0,8)",      "B0[4,12)",    "I1[0,1)", "W1[0,1)", "R3[8,16)", "SA2[0,4)@3", "RA2[0,4)@3",
      "SG10[7,9)@12", "RG0[0,32)@0", "AR1@0",   "OS1",     "OS1@4",    "RS3@1",      "AG3@1"};
  for (const std::string& text : texts) {
    auto action = ParseAction(text);
    ASSERT_EQ(action.status(), absl::OkStatus());
    EXPECT_EQ(ToString(*action), text);
  }
}

TEST(InWords, SaysWhatADeviceDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {"F2[0,8)", "the forward pass of stage 2 on samples 0 to 7"},
      {"W1[3,4)", "the backward pass to the weights of stage 1 on sample 3"},
      {"RA2[0,4)@3", "receiving activations of samples 0 to 3 for stage 2"},
      {"SG0[0,4)@3", "sending gradients of samples 0 to 3 from stage 0"},
      {"AR1@0", "summing gradients of stage 1 over devices"},
      {"RS1@0", "summing shares of the gradients of stage 1 over devices"},
      {"AG1@0", "exchanging updated parameters of stage 1"},
      {"OS1", "the optimizer step of stage 1"}};
  for (const auto& [text, words] : cases) EXPECT_EQ(InWords(*ParseAction(text)), words);
}

TEST(ParseAction, RejectsEverythingElse) {
  const std::string texts[] = {"",
                               "F",
                               "F2",
                               "2[0,8)",
                               "X2[0,8)",
                               "f2[0,8)",
                               "F2[0,8",
                               "F2[8,8)",
                               "F2[-1,8)",
                               "F2[0,8)@1",
                               "SA2[0,4)",
                               "SA2[0,4)@",
                               "AR1",
                               "OS1@",
                               "AR1[0,2)@0",
                               "OS",
                               "F2[0,8) ",
                               "F2[ 0,8)",
                               "F99999999999[0,8)",
                               "FF2[0,8)",
                               "F-1[0,8)",
                               "SA2[0,4)@-1"};
  for (const std::string& text : texts) {
    const absl::Status status = ParseAction(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("\"" + text + "\""));
  }
}

TEST(ActionKind, IsInOneClass) {
  for (int i = 0; i <= static_cast<int>(kLastActionKind); ++i) {
    const auto kind = static_cast<ActionKind>(i);
    EXPECT_EQ(IsTransfer(kind), IsSend(kind) != IsReceive(kind));
    EXPECT_EQ(IsCompute(kind), !IsTransfer(kind) && !IsCollective(kind));
    EXPECT_EQ(IsCollective(kind), IsSum(kind) || kind == ActionKind::kAllGather);
    EXPECT_TRUE(!IsSum(kind) || !IsTransfer(kind));
  }
}

}  // namespace
}  // namespace stagewright
