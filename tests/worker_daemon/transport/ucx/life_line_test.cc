#include "worker_daemon/transport/ucx/life_line.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace stagewright {
namespace {

constexpr int kPatience = 20000;  // Milliseconds.

TEST(LifeLineTest, AllWatchesSeeTheEnd) {
  auto line = LifeLine::Create();
  ASSERT_NE(line, nullptr);
  std::vector<std::unique_ptr<LifeWatch>> watches;
  for (int i = 0; i < 100; ++i) {
    watches.push_back(LifeWatch::Open(line->name()));
    ASSERT_NE(watches.back(), nullptr);
    EXPECT_FALSE(watches.back()->Ended());
  }
  line.reset();
  for (const auto& watch : watches) {
    pollfd fd = {watch->fd(), POLLIN, 0};
    EXPECT_EQ(poll(&fd, 1, kPatience), 1);
    EXPECT_TRUE(watch->Ended());
  }
}

TEST(LifeLineTest, AWatchThatGoesIsNotMissed) {
  auto line = LifeLine::Create();
  ASSERT_NE(line, nullptr);
  const auto stays = LifeWatch::Open(line->name());
  LifeWatch::Open(line->name()).reset();
  EXPECT_FALSE(stays->Ended());
  EXPECT_FALSE(LifeWatch::Open(line->name())->Ended());
}

TEST(LifeLineTest, EachHasItsOwn) {
  auto first = LifeLine::Create();
  auto second = LifeLine::Create();
  ASSERT_NE(first->name(), second->name());
  const auto watch = LifeWatch::Open(second->name());
  first.reset();
  EXPECT_FALSE(watch->Ended());
}

TEST(LifeLineTest, WhatHasEndedBeforeIsSeenAtOnce) {
  const std::string name = LifeLine::Create()->name();
  const auto watch = LifeWatch::Open(name);
  ASSERT_NE(watch, nullptr);
  EXPECT_TRUE(watch->Ended());
  EXPECT_EQ(watch->fd(), -1);
}

TEST(LifeLineTest, SeesTheDeathOfAProcess) {
  int name_pipe[2];
  ASSERT_EQ(pipe(name_pipe), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto line = LifeLine::Create();
    if (write(name_pipe[1], line->name().data(), line->name().size()) > 0) pause();
    _exit(0);
  }
  char name[256];
  const ssize_t length = read(name_pipe[0], name, sizeof(name));
  ASSERT_GT(length, 0);
  const auto watch = LifeWatch::Open({name, static_cast<size_t>(length)});
  ASSERT_NE(watch, nullptr);
  EXPECT_FALSE(watch->Ended());
  kill(child, SIGKILL);
  pollfd fd = {watch->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&fd, 1, kPatience), 1);
  EXPECT_TRUE(watch->Ended());
  waitpid(child, nullptr, 0);
  close(name_pipe[0]);
  close(name_pipe[1]);
}

TEST(LifeLineTest, WatchesOnlyWhatItCanSee) {
  const auto line = LifeLine::Create();
  const std::vector<std::string> fields = absl::StrSplit(line->name(), ' ');
  ASSERT_EQ(fields.size(), 3u);
  EXPECT_EQ(LifeWatch::Open(absl::StrCat("elsewhere ", fields[1], " ", fields[2])), nullptr);
  EXPECT_EQ(LifeWatch::Open(absl::StrCat(fields[0], " net:[1] ", fields[2])), nullptr);
  for (const char* name : {"", " ", "  ", "nonsense", "a b c d"}) {
    EXPECT_EQ(LifeWatch::Open(name), nullptr) << name;
  }
}

}  // namespace
}  // namespace stagewright
