#include "common/channel/grpc_log.h"

#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "common/log/log.h"

namespace stagewright {
namespace {

std::vector<LogLine> Logged() {
  std::vector<LogLine> lines;
  const LogTap tap([&](const LogLine& line) { lines.push_back(line); });
  gpr_log(GPR_ERROR, "Handshake failed");
  return lines;
}

TEST(GrpcLogTest, WhatGrpcSaysIsInTheLog) {
  LogWhatGrpcSays();
  const std::vector<LogLine> lines = Logged();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].message, "Handshake failed");
  EXPECT_EQ(lines[0].level, LogLevel::kWarning);
}

TEST(GrpcLogTest, OrNowhere) {
  unsetenv("GRPC_VERBOSITY");
  SilenceGrpc();
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(Logged().empty());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace stagewright
