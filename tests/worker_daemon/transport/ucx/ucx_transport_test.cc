#include "worker_daemon/transport/ucx/ucx_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "worker_daemon/transport/completion.h"
#include "worker_daemon/transport/unreached.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<UcxTransport>> Make(int device, UcxOptions options = {}) {
  options.key = std::string(GenerationKey::kBytes, 'k');
  return UcxTransport::Create({"job", 1, device}, options);
}

TEST(UcxTransport, ConnectNamesThoseThatDoNotAnswerInTime) {
  const auto one = Make(1), two = Make(2), three = Make(3);
  ASSERT_TRUE(one.ok() && two.ok() && three.ok());
  const absl::Status status = (*one)->Connect({{2, (*two)->Address()}, {3, (*three)->Address()}},
                                              absl::Now() + absl::Milliseconds(200));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no answer in time from device 2, 3"));
  EXPECT_THAT(UnreachedOf(status), ElementsAre(2, 3));
}

// A ball that goes back and forth: a message that nobody moves ends the game.
void Play(UcxTransport& end, uint32_t channel, bool helps) {
  constexpr uint32_t kRounds = 300;
  const int peer = 1 - end.device();
  std::vector<char> ball(300'000);
  for (uint32_t i = 0; i < kRounds; ++i) {
    const Tag tag{channel, Traffic::kActivation, i};
    const size_t bytes = i % 10 == 0 ? ball.size() : i % 3 * 4000;
    Completion completion;
    if (helps) end.Hold();
    if (static_cast<int>(i % 2) == end.device()) {
      end.Send(peer, tag, ball.data(), bytes, completion.Callback());
    } else {
      end.Receive(peer, tag, ball.data(), bytes, completion.Callback());
    }
    if (helps) end.Release();
    if (helps) end.Help([&] { return completion.done(); });
    ASSERT_EQ(completion.Wait(end, absl::Now() + absl::Minutes(2)), absl::OkStatus()) << i;
  }
}

// In these tests sleeps have no end of their own, so that whatever nobody is woken for hangs.
std::vector<std::unique_ptr<UcxTransport>> SleepyEnds(absl::Duration patience) {
  std::vector<std::unique_ptr<UcxTransport>> ends;
  for (const int device : {0, 1}) {
    ends.push_back(*Make(
        device,
        {.spin = absl::ZeroDuration(), .longest_sleep = absl::Hours(1), .patience = patience}));
  }
  std::vector<std::thread> threads;
  for (const int device : {0, 1}) {
    threads.emplace_back([&ends, device] {
      EXPECT_EQ(ends[device]->Connect({{1 - device, ends[1 - device]->Address()}},
                                      absl::Now() + absl::Minutes(2)),
                absl::OkStatus());
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

TEST(UcxTransport, AHelperLeavesNothingBehindThatOthersStartMeanwhile) {
  const auto ends = SleepyEnds(absl::Minutes(2));
  const Tag tag{0, Traffic::kActivation, 0};
  std::vector<char> sent(100, 'a'), received(100);
  Completion send, receive;
  int asked = 0;
  ends[0]->Help([&] {
    if (++asked < 2) return false;
    // The helper has taken its turn, and nobody else is woken while it is there.
    std::thread([&] { ends[0]->Send(1, tag, sent.data(), sent.size(), send.Callback()); }).join();
    return true;
  });
  EXPECT_TRUE(send.done()) << "on its way out; the thread of the transport sleeps";
  ends[1]->Receive(0, tag, received.data(), received.size(), receive.Callback());
  EXPECT_EQ(receive.Wait(*ends[1], absl::Now() + absl::Minutes(2)), absl::OkStatus());
  EXPECT_EQ(send.Wait(*ends[0], absl::Now() + absl::Minutes(2)), absl::OkStatus());
  EXPECT_EQ(received, sent);
}

// Threads that compute take the cores from those that move messages, as passes do.
TEST(UcxTransport, WhoeverSleepsIsWokenForWhatTheHelpersLeave) {
  std::atomic<bool> over = false;
  std::atomic<uint64_t> work = 0;
  std::vector<std::thread> busy;
  for (int i = 0; i < 2; ++i) {
    busy.emplace_back([&] {
      while (!over) ++work;
    });
  }
  for (const absl::Duration patience : {absl::ZeroDuration(), absl::Microseconds(30)}) {
    const auto ends = SleepyEnds(patience);
    std::vector<std::thread> players;
    for (const auto& end : ends) {
      for (const bool helps : {false, true})
        players.emplace_back([&end, helps] { Play(*end, helps ? 0 : 1, helps); });
    }
    for (std::thread& player : players) player.join();
  }
  over = true;
  for (std::thread& thread : busy) thread.join();
}

}  // namespace
}  // namespace stagewright
