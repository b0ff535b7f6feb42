#include "clients/cli/last_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

namespace stagewright::cli {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::KilledBySignal;
using ::testing::Not;

TEST(LastWordsTest, AreSaidBeforeASignalEndsTheProgram) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          const LastWords words("jobs/7 goes on");
          raise(signal);
        },
        KilledBySignal(signal), HasSubstr("jobs/7 goes on\n"));
  }
}

TEST(LastWordsTest, AreNotSaidOtherwise) {
  EXPECT_EXIT(
      {
        { const LastWords words("jobs/7 goes on"); }
        raise(SIGINT);
      },
      KilledBySignal(SIGINT), Not(HasSubstr("goes on")));
  EXPECT_EXIT(
      {
        const LastWords words("jobs/7 goes on");
        std::_Exit(0);
      },
      ExitedWithCode(0), Not(HasSubstr("goes on")));
}

}  // namespace
}  // namespace stagewright::cli
