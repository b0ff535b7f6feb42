// What every Transport must do, between devices of one process. A new implementation joins by one
// line in AllImplementations().
#include <atomic>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker_daemon/transport/worlds.h"
#include "worker_daemon/transport/completion.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

constexpr size_t kLarge = size_t{64} << 20;

using TransportConformanceTest = ImplementationTest;

Tag Message(uint32_t channel, uint32_t sequence = 0) {
  return {channel, Traffic::kActivation, sequence};
}

// One operation and the memory it works on.
struct Transferred {
  std::vector<char> memory;
  Completion completion;

  absl::Status Wait(Transport& transport) { return completion.Wait(transport, Soon()); }
};

Transferred StartSend(Transport& transport, int peer, Tag tag, std::vector<char> memory) {
  Transferred send{std::move(memory), {}};
  transport.Send(peer, tag, send.memory.data(), send.memory.size(), send.completion.Callback());
  return send;
}

Transferred StartReceive(Transport& transport, int peer, Tag tag, size_t bytes) {
  Transferred receive{std::vector<char>(bytes), {}};
  transport.Receive(peer, tag, receive.memory.data(), bytes, receive.completion.Callback());
  return receive;
}

void ExpectTransfer(Transport& from, Transport& to, Tag tag, size_t bytes, bool receive_first) {
  const std::vector<char> content = Pattern(bytes, tag.channel + tag.sequence);
  Transferred receive;
  Transferred send;
  if (receive_first) {
    receive = StartReceive(to, from.device(), tag, bytes);
    absl::SleepFor(absl::Milliseconds(20));
    send = StartSend(from, to.device(), tag, content);
  } else {
    send = StartSend(from, to.device(), tag, content);
    absl::SleepFor(absl::Milliseconds(20));
    receive = StartReceive(to, from.device(), tag, bytes);
  }
  EXPECT_EQ(send.Wait(from), absl::OkStatus());
  EXPECT_EQ(receive.Wait(to), absl::OkStatus());
  EXPECT_TRUE(receive.memory == content);
}

TEST_P(TransportConformanceTest, DeliversWhicheverEndComesFirst) {
  World world = Connected(2);
  uint32_t sequence = 0;
  for (const size_t bytes : {0u, 1u, 100u, 1024u, 8191u, 70000u, 1000003u}) {
    for (const bool receive_first : {true, false}) {
      ExpectTransfer(*world[0], *world[1], Message(1, sequence++), bytes, receive_first);
      ExpectTransfer(*world[1], *world[0], Message(1, sequence++), bytes, receive_first);
    }
  }
}

TEST_P(TransportConformanceTest, DeliversLargeMessages) {
  World world = Connected(2);
  ExpectTransfer(*world[0], *world[1], Message(0, 0), kLarge, true);
  ExpectTransfer(*world[1], *world[0], Message(0, 1), kLarge, false);
}

TEST_P(TransportConformanceTest, BeginsTheOperationsOfABatchAtItsEnd) {
  World world = Connected(2);
  std::vector<Transferred> transfers;
  for (uint32_t i = 0; i < 8; ++i) {
    const Transport::Batch batch(*world[i % 2]);
    // The batch is one of the sender, so that this receive begins at once.
    transfers.push_back(StartReceive(*world[1 - i % 2], i % 2, Message(3, i), 70000));
    for (const size_t bytes : {70000, 100}) {
      transfers.push_back(
          StartSend(*world[i % 2], 1 - i % 2, Message(bytes == 100 ? 4 : 3, i), Pattern(bytes, i)));
    }
    transfers.push_back(StartReceive(*world[1 - i % 2], i % 2, Message(4, i), 100));
  }
  for (size_t i = 0; i < transfers.size(); ++i) {
    EXPECT_EQ(transfers[i].Wait(*world[0]), absl::OkStatus());
    EXPECT_TRUE(transfers[i].memory ==
                Pattern(transfers[i].memory.size(), static_cast<uint32_t>(i / 4)));
  }
}

// Both ends do the work of their transports while they wait, at times, and sleep at others.
TEST_P(TransportConformanceTest, ThreadsThatWaitMayHelp) {
  World world = Connected(2);
  const auto run = [&](int device) {
    Transport& transport = *world[device];
    std::mt19937 random(static_cast<uint32_t>(device));
    for (uint32_t i = 0; i < 200; ++i) {
      const size_t bytes = i % 50 == 49 ? 1000003 : i % 7 * 10000;
      auto batch = random() % 2 == 0 ? std::make_unique<Transport::Batch>(transport) : nullptr;
      Transferred receive = StartReceive(transport, 1 - device, Message(5, i), bytes);
      Transferred send = StartSend(transport, 1 - device, Message(5, i), Pattern(bytes, i));
      batch.reset();
      if (random() % 3 > 0)
        transport.Help([&] { return receive.completion.done() && send.completion.done(); });
      EXPECT_EQ(receive.Wait(transport), absl::OkStatus());
      EXPECT_EQ(send.Wait(transport), absl::OkStatus());
      EXPECT_TRUE(receive.memory == send.memory) << i;
    }
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
}

TEST_P(TransportConformanceTest, MatchesEqualTagsInTheOrderOfPosting) {
  World world = Connected(2);
  std::vector<Transferred> sends;
  std::vector<Transferred> receives;
  for (uint32_t i = 0; i < 100; ++i) {
    // Sizes on both sides of the limit between the protocols of an implementation.
    const size_t bytes = i % 3 == 0 ? 200000 : 64;
    sends.push_back(StartSend(*world[0], 1, Message(2), Pattern(bytes, i)));
  }
  for (uint32_t i = 0; i < 100; ++i) {
    receives.push_back(StartReceive(*world[1], 0, Message(2), i % 3 == 0 ? 200000 : 64));
  }
  for (uint32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(receives[i].Wait(*world[1]), absl::OkStatus());
    EXPECT_TRUE(receives[i].memory == Pattern(receives[i].memory.size(), i)) << i;
    EXPECT_EQ(sends[i].Wait(*world[0]), absl::OkStatus());
  }
}

TEST_P(TransportConformanceTest, MatchesDifferentTagsInAnyOrder) {
  World world = Connected(3);
  struct Edge {
    int from, to;
    Tag tag;
    size_t bytes;
  };
  std::mt19937 random(7);
  std::vector<Edge> edges;
  for (uint32_t channel : {0u, 1u, 2u, 31u, Tag::kMaxChannel}) {
    for (const Traffic traffic :
         {Traffic::kActivation, Traffic::kGradient, Traffic::kReduction, Traffic::kState}) {
      for (uint32_t sequence = 0; sequence < 8; ++sequence) {
        const int from = static_cast<int>(random() % 3);
        const int to = (from + 1 + static_cast<int>(random() % 2)) % 3;
        edges.push_back({from, to, {channel, traffic, sequence}, random() % 30000});
      }
    }
  }
  std::vector<size_t> order(edges.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<Transferred> sends(edges.size());
  std::vector<Transferred> receives(edges.size());
  std::shuffle(order.begin(), order.end(), random);
  for (const size_t i : order) {
    const Edge& edge = edges[i];
    sends[i] = StartSend(*world[edge.from], edge.to, edge.tag,
                         Pattern(edge.bytes, static_cast<uint32_t>(i)));
  }
  std::shuffle(order.begin(), order.end(), random);
  for (const size_t i : order) {
    const Edge& edge = edges[i];
    receives[i] = StartReceive(*world[edge.to], edge.from, edge.tag, edge.bytes);
  }
  for (size_t i = 0; i < edges.size(); ++i) {
    EXPECT_EQ(receives[i].Wait(*world[edges[i].to]), absl::OkStatus());
    EXPECT_TRUE(receives[i].memory == Pattern(edges[i].bytes, static_cast<uint32_t>(i)));
    EXPECT_EQ(sends[i].Wait(*world[edges[i].from]), absl::OkStatus());
  }
}

template <typename T>
std::vector<char> BytesOf(const std::vector<T>& values) {
  std::vector<char> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Nothing may look at what it carries: not a bit changes, of no type, however odd the value.
TEST_P(TransportConformanceTest, KeepsTheBitsOfEveryType) {
  World world = Connected(2);
  std::vector<std::vector<char>> contents;
  for (const double scale : {0.0, -0.0, 1e-320, 1e308}) {
    contents.push_back(BytesOf<double>({scale, -scale, scale * scale, std::nan("17")}));
    contents.push_back(BytesOf<std::complex<double>>({{scale, -scale}, {-0.0, 1 / scale}}));
  }
  const float infinity = std::numeric_limits<float>::infinity();
  contents.push_back(BytesOf<float>({infinity, -infinity, std::nanf("3"), -0.0f, 1e-45f}));
  std::vector<uint16_t> halves(1 << 16);  // Every fp16 and every bf16 there is.
  std::iota(halves.begin(), halves.end(), uint16_t{0});
  contents.push_back(BytesOf(halves));
  contents.push_back(BytesOf<int64_t>({std::numeric_limits<int64_t>::min(), -1, 0, 1}));
  contents.push_back(BytesOf<int32_t>({std::numeric_limits<int32_t>::min(), -1, 0, 1}));
  contents.push_back(BytesOf<int16_t>({-32768, -1, 0, 1}));
  std::vector<uint8_t> octets(256);
  std::iota(octets.begin(), octets.end(), uint8_t{0});
  contents.push_back(BytesOf(octets));
  contents.push_back({0, 1, 1, 0, 1});  // Elements of bool, a size that no other type divides.
  for (uint32_t i = 0; i < contents.size(); ++i) {
    Transferred receive = StartReceive(*world[1], 0, Message(3, i), contents[i].size());
    Transferred send = StartSend(*world[0], 1, Message(3, i), contents[i]);
    EXPECT_EQ(receive.Wait(*world[1]), absl::OkStatus());
    EXPECT_EQ(send.Wait(*world[0]), absl::OkStatus());
    EXPECT_TRUE(receive.memory == contents[i]) << "content " << i;
  }
}

// All edges and hundreds of channels are busy at the same time, and each device posts in an order
// of its own: a transport that serves one operation before another may only do so if that one can
// end.
TEST_P(TransportConformanceTest, ManyChannelsAtOnce) {
  constexpr int kDevices = 4;
  constexpr uint32_t kChannels = 30;
  World world = Connected(kDevices);
  struct Operation {
    int peer;
    uint32_t channel;
    bool is_send;
  };
  const auto content = [](int from, int to, uint32_t channel) {
    const uint32_t seed = channel * 100 + static_cast<uint32_t>(from * 10 + to);
    return Pattern(seed * 7919 % 60000, seed);
  };
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int self = 0; self < kDevices; ++self) {
    threads.emplace_back([&, self] {
      std::vector<Operation> operations;
      for (int peer = 0; peer < kDevices; ++peer) {
        for (uint32_t channel = 0; channel < kChannels && peer != self; ++channel) {
          operations.push_back({peer, channel, true});
          operations.push_back({peer, channel, false});
        }
      }
      std::mt19937 random(static_cast<uint32_t>(self));
      std::shuffle(operations.begin(), operations.end(), random);
      std::vector<Transferred> transfers;
      for (const auto& [peer, channel, is_send] : operations) {
        transfers.push_back(
            is_send ? StartSend(*world[self], peer, Message(channel), content(self, peer, channel))
                    : StartReceive(*world[self], peer, Message(channel),
                                   content(peer, self, channel).size()));
      }
      for (size_t i = 0; i < operations.size(); ++i) {
        const auto& [peer, channel, is_send] = operations[i];
        wrong += !transfers[i].Wait(*world[self]).ok();
        wrong += !is_send && transfers[i].memory != content(peer, self, channel);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(TransportConformanceTest, TakesOperationsFromManyThreads) {
  constexpr uint32_t kThreads = 4;
  constexpr uint32_t kMessages = 200;
  World world = Connected(2);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (uint32_t channel = 0; channel < kThreads; ++channel) {
    for (const int self : {0, 1}) {
      threads.emplace_back([&, channel, self] {
        for (uint32_t i = 0; i < kMessages; ++i) {
          const std::vector<char> content = Pattern(100 + i * 50, channel * 1000 + i);
          const Tag tag = Message(channel, i);
          if (self == 0) {
            Transferred send = StartSend(*world[0], 1, tag, content);
            wrong += !send.Wait(*world[0]).ok();
          } else {
            Transferred receive = StartReceive(*world[1], 0, tag, content.size());
            wrong += !receive.Wait(*world[1]).ok() || receive.memory != content;
          }
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(TransportConformanceTest, SizeMismatchNamesBothSizes) {
  World world = Connected(2);
  uint32_t sequence = 0;
  for (const size_t sent : {0u, 64u, 5000u, 3000000u}) {
    for (const size_t expected : {0u, 63u, 4999u, 2999999u, 3000001u}) {
      if (sent == expected) continue;
      for (const bool receive_first : {true, false}) {
        const Tag tag = Message(9, sequence++);
        Transferred receive;
        if (receive_first) receive = StartReceive(*world[1], 0, tag, expected);
        Transferred send = StartSend(*world[0], 1, tag, std::vector<char>(sent));
        if (!receive_first) {
          absl::SleepFor(absl::Milliseconds(5));
          receive = StartReceive(*world[1], 0, tag, expected);
        }
        const absl::Status status = receive.Wait(*world[1]);
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr(absl::StrCat("device 0 sent ", sent, " bytes, device 1 expected ",
                                           expected)));
        send.Wait(*world[0]).IgnoreError();  // It ends; implementations differ in how.
      }
    }
  }
  ExpectTransfer(*world[0], *world[1], Message(10), 1000, true);
}

TEST_P(TransportConformanceTest, RefusesWhatCannotBe) {
  World world = Connected(2);
  char byte = 0;
  absl::Status status = SendAndWait(*world[0], 5, Message(0), &byte, 1, Soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("device 5"));
  status = ReceiveAndWait(*world[0], 0, Message(0), &byte, 1, Soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  status = SendAndWait(*world[0], 1, Message(Tag::kMaxChannel + 1), &byte, 1, Soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_FALSE(GetParam().create({"test", 1, Transport::kMaxDevice + 1}).ok());
  EXPECT_FALSE(GetParam().create({"test", 1, -1}).ok());
}

TEST_P(TransportConformanceTest, RefusesAddressesOfOthers) {
  World world = CreateWorld(GetParam(), 2, 1);
  World later = CreateWorld(GetParam(), 2, 2);
  const auto refused = [&](Transport::Peer peer, const std::string& why) {
    const absl::Status status = world[0]->Connect({std::move(peer)}, Soon());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  };
  refused({1, later[1]->Address()}, "generation 2");
  refused({2, world[1]->Address()}, "in truth that of device 1");
  refused({0, world[0]->Address()}, "itself");
  refused({1, ""}, "address of device 1");
  refused({1, "nonsense"}, "address of device 1");
  std::string damaged = world[1]->Address();
  damaged[damaged.size() / 2] ^= 1;
  refused({1, damaged}, "not a transport address");
}

TEST_P(TransportConformanceTest, DoneComesFromAnotherThread) {
  World world = Connected(2);
  const std::thread::id self = std::this_thread::get_id();
  absl::Mutex held;  // By the caller, as callers do; `done` takes it too.
  absl::BlockingCounter ended(3);
  std::atomic<int> on_self = 0;
  char bytes[2] = {};
  const auto done = [&](absl::Status) {
    {
      absl::MutexLock lock(&held);
      on_self += std::this_thread::get_id() == self;
    }
    ended.DecrementCount();  // Nothing of this test is there any more after the last one.
  };
  {
    absl::MutexLock lock(&held);
    world[0]->Send(1, Message(0), &bytes[0], 1, done);
    world[1]->Receive(0, Message(0), &bytes[1], 1, done);
    world[0]->Send(7, Message(0), &bytes[0], 1, done);  // Fails at once.
    absl::SleepFor(absl::Milliseconds(50));
  }
  ended.Wait();
  EXPECT_EQ(on_self, 0);
}

TEST_P(TransportConformanceTest, DoneMayStartTheNextOperation) {
  constexpr uint32_t kRounds = 500;
  World world = Connected(2);
  absl::Notification end;
  absl::BlockingCounter sent(kRounds);
  std::vector<uint32_t> out(kRounds);
  uint32_t in = 0;
  std::function<void(uint32_t)> round = [&](uint32_t i) {
    if (i == kRounds) return end.Notify();
    world[1]->Receive(0, Message(0, i), &in, sizeof(in), [&, i](absl::Status status) {
      EXPECT_EQ(status, absl::OkStatus());
      EXPECT_EQ(in, i);
      round(i + 1);
    });
    out[i] = i;
    world[0]->Send(1, Message(0, i), &out[i], sizeof(out[i]), [&](absl::Status status) {
      EXPECT_EQ(status, absl::OkStatus());
      sent.DecrementCount();
    });
  };
  round(0);
  EXPECT_TRUE(end.WaitForNotificationWithTimeout(kSoon));
  sent.Wait();
}

TEST_P(TransportConformanceTest, WaitsForASlowPeer) {
  World world = Connected(2);
  Transferred large = StartSend(*world[0], 1, Message(0), Pattern(kLarge / 8, 3));
  Transferred back = StartReceive(*world[0], 1, Message(1), 10);
  absl::SleepFor(absl::Milliseconds(2500));
  Transferred receive = StartReceive(*world[1], 0, Message(0), kLarge / 8);
  Transferred answer = StartSend(*world[1], 0, Message(1), std::vector<char>(10));
  EXPECT_EQ(large.Wait(*world[0]), absl::OkStatus());
  EXPECT_EQ(receive.Wait(*world[1]), absl::OkStatus());
  EXPECT_EQ(answer.Wait(*world[1]), absl::OkStatus());
  EXPECT_EQ(back.Wait(*world[0]), absl::OkStatus());
  EXPECT_TRUE(receive.memory == large.memory);
}

TEST_P(TransportConformanceTest, AbortFailsEverythingHereAndAtThePeers) {
  World world = Connected(3);
  Transferred here = StartReceive(*world[0], 1, Message(0), 100);
  Transferred sent = StartSend(*world[0], 1, Message(5), std::vector<char>(3000000));
  Transferred there = StartReceive(*world[1], 0, Message(1), 100);
  Transferred large = StartSend(*world[2], 0, Message(2), std::vector<char>(3000000));
  absl::SleepFor(absl::Milliseconds(20));
  const absl::Time start = absl::Now();
  world[0]->Abort(absl::DataLossError("the disk burns"));
  world[0]->Abort(absl::InternalError("too late to count"));
  EXPECT_EQ(here.Wait(*world[0]), absl::DataLossError("the disk burns"));
  EXPECT_EQ(sent.Wait(*world[0]), absl::DataLossError("the disk burns"));
  for (const absl::Status& status : {there.Wait(*world[1]), large.Wait(*world[2])}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("device 0"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("the disk burns"));
  }
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  // New operations fail likewise; those between the others do not, unless all hang together.
  EXPECT_EQ(StartReceive(*world[0], 1, Message(3), 1).Wait(*world[0]),
            absl::DataLossError("the disk burns"));
  EXPECT_EQ(StartSend(*world[1], 0, Message(3), {'x'}).Wait(*world[1]).code(),
            absl::StatusCode::kUnavailable);
  if (GetParam().isolates_losses) {
    ExpectTransfer(*world[1], *world[2], Message(4), 100000, true);
  } else {
    EXPECT_EQ(StartSend(*world[1], 2, Message(4), {'x'}).Wait(*world[1]).code(),
              absl::StatusCode::kUnavailable);
  }
}

TEST_P(TransportConformanceTest, AbortDuringATransfer) {
  for (int trial = 0; trial < 12; ++trial) {
    World world = Connected(2, static_cast<uint64_t>(trial));
    Transferred receive = StartReceive(*world[1], 0, Message(0), kLarge);
    Transferred send = StartSend(*world[0], 1, Message(0), std::vector<char>(kLarge, 'a'));
    absl::SleepFor(absl::Milliseconds(2 * trial));
    world[trial % 2]->Abort(absl::AbortedError("enough"));
    const absl::Status sent = send.Wait(*world[0]);
    const absl::Status received = receive.Wait(*world[1]);
    // Whoever did not get its bytes says so, and an OK receive has them all.
    if (received.ok()) {
      EXPECT_TRUE(receive.memory == send.memory) << "trial " << trial;
    }
    const absl::Status& own = trial % 2 == 0 ? sent : received;
    const absl::Status& other = trial % 2 == 0 ? received : sent;
    EXPECT_TRUE(own.ok() || own == absl::AbortedError("enough")) << own;
    EXPECT_TRUE(other.ok() || other.code() == absl::StatusCode::kUnavailable) << other;
    // The memory is ours again: nothing may write to it.
    std::fill(receive.memory.begin(), receive.memory.end(), 'z');
    world.clear();
    EXPECT_EQ(std::count(receive.memory.begin(), receive.memory.end(), 'z'),
              static_cast<ptrdiff_t>(kLarge));
  }
}

TEST_P(TransportConformanceTest, BothAbortDuringTransfersBothWays) {
  constexpr uint32_t kMessages = 4;
  const std::vector<char> content = Pattern(size_t{4} << 20, 1);
  for (int trial = 0; trial < 6; ++trial) {
    World world = Connected(2, static_cast<uint64_t>(trial));
    std::vector<Transferred> pending[2];
    for (const int self : {0, 1}) {
      for (uint32_t i = 0; i < kMessages; ++i) {
        pending[self].push_back(
            StartReceive(*world[self], 1 - self, Message(0, i), content.size()));
        pending[self].push_back(StartSend(*world[self], 1 - self, Message(0, i), content));
      }
    }
    absl::SleepFor(absl::Microseconds(1500 * trial));
    for (const int self : {0, 1}) world[self]->Abort(absl::AbortedError("enough"));
    for (const int self : {0, 1}) {
      for (uint32_t i = 0; i < 2 * kMessages; ++i) {
        Transferred& transferred = pending[self][i];
        const absl::Status status = transferred.Wait(*world[self]);
        if (status.ok()) {
          EXPECT_TRUE(transferred.memory == content);
        } else {
          EXPECT_TRUE(absl::IsAborted(status) || absl::IsUnavailable(status)) << status;
        }
      }
    }
  }
}

TEST_P(TransportConformanceTest, ANewGenerationWorksAfterAnAbort) {
  World old = Connected(2, 1);
  // Left behind: a small message that nobody receives.
  Transferred stale = StartSend(*old[0], 1, Message(0), {'s', 't', 'a', 'l', 'e'});
  absl::SleepFor(absl::Milliseconds(20));
  old[0]->Abort(absl::AbortedError("restart"));
  old[1]->Abort(absl::AbortedError("restart"));
  World world = Connected(2, 2);
  ExpectTransfer(*world[0], *world[1], Message(0), 5, true);
  ExpectTransfer(*world[1], *world[0], Message(0), 100000, false);
  stale.Wait(*old[0]).IgnoreError();
}

TEST_P(TransportConformanceTest, GenerationsDoNotMix) {
  // 256 apart: equal in the bits of the tag that UCX sees.
  World first = Connected(2, 1);
  World second = Connected(2, 257);
  Transferred receive_second = StartReceive(*second[1], 0, Message(0), 4);
  Transferred receive_first = StartReceive(*first[1], 0, Message(0), 4);
  Transferred send_first = StartSend(*first[0], 1, Message(0), {'o', 'n', 'e', '1'});
  EXPECT_EQ(receive_first.Wait(*first[1]), absl::OkStatus());
  EXPECT_TRUE(receive_first.memory == send_first.memory);
  Transferred send_second = StartSend(*second[0], 1, Message(0), {'t', 'w', 'o', '2'});
  EXPECT_EQ(receive_second.Wait(*second[1]), absl::OkStatus());
  EXPECT_TRUE(receive_second.memory == send_second.memory);
  EXPECT_EQ(send_first.Wait(*first[0]), absl::OkStatus());
  EXPECT_EQ(send_second.Wait(*second[0]), absl::OkStatus());
}

TEST_P(TransportConformanceTest, DestructionFailsWhatIsPending) {
  World world = Connected(2);
  Transferred own = StartReceive(*world[0], 1, Message(0), 10);
  Transferred peers = StartReceive(*world[1], 0, Message(1), 10);
  world[0].reset();
  EXPECT_EQ(own.Wait(*world[1]).code(), absl::StatusCode::kCancelled);
  const absl::Status status = peers.Wait(*world[1]);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("device 0"));
}

TEST_P(TransportConformanceTest, WhatWasSentBeforeClosingArrives) {
  for (const size_t bytes : {0u, 1000u, 200000u}) {
    World world = Connected(2);
    const std::vector<char> content = Pattern(bytes, 1);
    std::thread sender([&] {
      Transferred send = StartSend(*world[0], 1, Message(0), content);
      EXPECT_EQ(send.Wait(*world[0]), absl::OkStatus());
      world[0].reset();
    });
    absl::SleepFor(absl::Milliseconds(200));
    Transferred receive = StartReceive(*world[1], 0, Message(0), bytes);
    EXPECT_EQ(receive.Wait(*world[1]), absl::OkStatus()) << bytes;
    EXPECT_TRUE(receive.memory == content);
    sender.join();
  }
}

TEST_P(TransportConformanceTest, DeadlinesAreHonoured) {
  World world = Connected(2);
  char byte = 0;
  const absl::Time start = absl::Now();
  const absl::Status status =
      ReceiveAndWait(*world[0], 1, Message(0), &byte, 1, start + absl::Milliseconds(100));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

TEST_P(TransportConformanceTest, AbortBeforeConnect) {
  World world = CreateWorld(GetParam(), 2);
  world[0]->Abort(absl::AbortedError("never mind"));
  const absl::Time start = absl::Now();
  const absl::Status status =
      world[1]->Connect({{0, world[0]->Address()}}, start + absl::Milliseconds(300));
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("device 0"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

INSTANTIATE_TEST_SUITE_P(All, TransportConformanceTest, ::testing::ValuesIn(AllImplementations()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stagewright::testing
