#include "worker_daemon/transport/ucx/process_watch.h"

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

std::string Replaced(int field, const std::string& value) {
  std::vector<std::string> fields = absl::StrSplit(ProcessName(), ' ');
  fields[field] = value;
  return absl::StrCat(fields[0], " ", fields[1], " ", fields[2], " ", fields[3]);
}

TEST(ProcessWatchTest, ThisProcessLives) {
  const auto watch = ProcessWatch::Open(ProcessName());
  ASSERT_NE(watch, nullptr);
  EXPECT_FALSE(watch->Ended());
}

TEST(ProcessWatchTest, SeesTheEndOfAProcessThatNobodyReaps) {
  int name_pipe[2];
  ASSERT_EQ(pipe(name_pipe), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string name = ProcessName();
    if (write(name_pipe[1], name.data(), name.size()) > 0) pause();
    _exit(0);
  }
  char name[256];
  const ssize_t size = read(name_pipe[0], name, sizeof(name));
  ASSERT_GT(size, 0);
  const auto watch = ProcessWatch::Open(absl::string_view(name, static_cast<size_t>(size)));
  ASSERT_NE(watch, nullptr);
  EXPECT_FALSE(watch->Ended());
  kill(child, SIGKILL);
  pollfd fd = {watch->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&fd, 1, 10000), 1);
  EXPECT_TRUE(watch->Ended());
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(watch->Ended());
  const auto late = ProcessWatch::Open(absl::string_view(name, static_cast<size_t>(size)));
  ASSERT_NE(late, nullptr);
  EXPECT_TRUE(late->Ended());
  close(name_pipe[0]);
  close(name_pipe[1]);
}

TEST(ProcessWatchTest, AReusedIdIsAnotherProcess) {
  const auto watch = ProcessWatch::Open(Replaced(3, "1"));
  ASSERT_NE(watch, nullptr);
  EXPECT_TRUE(watch->Ended());
}

TEST(ProcessWatchTest, WatchesNoStrangers) {
  EXPECT_EQ(ProcessWatch::Open(Replaced(0, "another-machine")), nullptr);
  EXPECT_EQ(ProcessWatch::Open(Replaced(1, "pid:[1]")), nullptr);
  EXPECT_EQ(ProcessWatch::Open(""), nullptr);
  EXPECT_EQ(ProcessWatch::Open("a b c d"), nullptr);
}

}  // namespace
}  // namespace stagewright
