#include "common/program/unroll.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/program/check_ids.h"
#include "common/program/text.h"
#include "common/validation/validate.h"

namespace stagewright {
namespace {

constexpr char kProgram[] = R"(program 1
batch samples=2 training=1 asynchronous=1
stage 0 nodes=0 replicated=- devices=0 micro_batch=1 backward=1
device 0 resident=4
prologue:
0 F0[0,1) +3
body:
0 B0[0,1) -3
1 OS0 <0
2 F0[1,2) +3
3 B0[1,2) -3
4 OS0 <3
5 F0[2,3) +3
epilogue:
0 B0[0,1) -3
1 OS0 <0
2 F0[1,2) +3
3 B0[1,2) -3
4 OS0 <3
)";

TEST(Unroll, CountsSamplesAndIndicesThrough) {
  const Program program = *ParseProgram(kProgram);
  ASSERT_TRUE(HasSections(program));
  EXPECT_EQ(Validate(program, {}), absl::OkStatus());
  EXPECT_EQ(PeakMemory(program.devices[0]), 4 + 3);
  const Program unrolled = Unroll(program, 2);
  EXPECT_FALSE(HasSections(unrolled));
  EXPECT_EQ(ToText(unrolled), R"(program 1
batch samples=4 training=1 asynchronous=1
stage 0 nodes=0 replicated=- devices=0 micro_batch=1 backward=1
device 0 resident=4
body:
0 F0[0,1) +3
1 B0[0,1) -3
2 OS0 <1
3 F0[1,2) +3
4 B0[1,2) -3
5 OS0 <4
6 F0[2,3) +3
7 B0[2,3) -3
8 OS0 <7
9 F0[3,4) +3
10 B0[3,4) -3
11 OS0 <10
)");
  EXPECT_EQ(Validate(unrolled, {}), absl::OkStatus());
}

TEST(Unroll, OneStepIsPrologueAndEpilogue) {
  const Program unrolled = Unroll(*ParseProgram(kProgram), 1);
  EXPECT_EQ(unrolled.mini_batch, 2);
  EXPECT_EQ(unrolled.devices[0].body.size(), 6u);
}

TEST(Unroll, SynchronousProgramsHaveNoSections) {
  Program program = *ParseProgram(kProgram);
  program.asynchronous = false;
  EXPECT_FALSE(HasSections(program));
  // Samples of the next step are out of place there.
  EXPECT_EQ(CheckIds(program).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stagewright
