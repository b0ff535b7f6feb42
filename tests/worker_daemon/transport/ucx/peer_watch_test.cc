#include "worker_daemon/transport/ucx/peer_watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace stagewright {
namespace {

TEST(PeerWatchTest, WatchesNothingWithoutNames) {
  PeerWatch none;
  PeerWatch unnamed("", "");
  EXPECT_TRUE(none.fds().empty());
  EXPECT_TRUE(unnamed.fds().empty());
  EXPECT_EQ(unnamed.TakeEnd(), "");
}

TEST(PeerWatchTest, TellsTheEndOfATransportOnce) {
  auto line = LifeLine::Create();
  ASSERT_NE(line, nullptr);
  PeerWatch watch(ProcessName(), line->name());
  EXPECT_EQ(watch.TakeEnd(), "");
  const std::vector<int> fds = watch.fds();
  ASSERT_EQ(fds.size(), 2);
  line.reset();
  pollfd life = {fds[1], POLLIN, 0};
  EXPECT_EQ(poll(&life, 1, 20000), 1);
  EXPECT_EQ(watch.TakeEnd(), "its transport ended");
  EXPECT_EQ(watch.TakeEnd(), "");
  EXPECT_EQ(watch.fds().size(), 1);  // The process lives on.
}

TEST(PeerWatchTest, TheEndOfAProcessTellsThatOfItsTransport) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto line = LifeLine::Create();
    const std::string names = ProcessName() + "\n" + (line == nullptr ? "" : line->name());
    [[maybe_unused]] const ssize_t written = write(pipe_ends[1], names.data(), names.size());
    pause();
    _exit(0);
  }
  char names[1024] = {};
  ASSERT_GT(read(pipe_ends[0], names, sizeof(names) - 1), 0);
  const std::string both = names;
  PeerWatch watch(both.substr(0, both.find('\n')), both.substr(both.find('\n') + 1));
  EXPECT_EQ(watch.TakeEnd(), "");
  ASSERT_EQ(watch.fds().size(), 2);
  kill(child, SIGKILL);
  for (const int fd : watch.fds()) {
    pollfd end = {fd, POLLIN, 0};
    EXPECT_EQ(poll(&end, 1, 20000), 1);
  }
  EXPECT_EQ(watch.TakeEnd(), "its process ended");
  EXPECT_EQ(watch.TakeEnd(), "");
  EXPECT_TRUE(watch.fds().empty());
  waitpid(child, nullptr, 0);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace
}  // namespace stagewright
