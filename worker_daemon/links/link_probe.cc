#include "worker_daemon/links/link_probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"
#include "common/clock/steady_now.h"
#include "common/clock/steady_wait.h"
#include "worker_daemon/transport/all_reduce.h"

namespace stagewright {
namespace {

using Clock = std::chrono::steady_clock;

// Between messages, as a pipeline has time between them.
constexpr auto kPause = std::chrono::microseconds(500);

// Small ones, those of activations, and some that show the bandwidth.
constexpr struct {
  int64_t bytes;
  int repeats;
} kSizes[] = {{64, 12}, {4 << 10, 12}, {32 << 10, 12}, {128 << 10, 8}, {512 << 10, 6}};

constexpr auto kWorkTime = std::chrono::milliseconds(50);
constexpr int kBlocks = 3;
constexpr int kRoundsOfBlock = 16;
constexpr int64_t kSmall = 4 << 10;
constexpr int64_t kLarge = 256 << 10;
constexpr int kLargeMessages = 4;

constexpr int64_t kActivation = 128 << 10;
constexpr int kReductions = 4;
constexpr size_t kReduced = 256;  // Elements.

constexpr Tag kData = {0, Traffic::kState, 0};
constexpr Tag kAnswer = {1, Traffic::kState, 0};
constexpr Tag kSum = {2, Traffic::kState, 0};

Nanos Since(Clock::time_point start) {
  return Nanos(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
}

// The first quartile: other programs make messages slower, never faster.
Nanos Typical(std::vector<Nanos> times) {
  const auto place = times.begin() + static_cast<ptrdiff_t>(times.size() / 4);
  std::nth_element(times.begin(), place, times.end());
  return *place;
}

// Operations that are waited for together. Waits in the destructor, too: their memory is free then.
class Operations {
 public:
  explicit Operations(Transport& transport) : transport_(transport) {}
  ~Operations() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Operations::Ended));
  }

  void Send(int peer, Tag tag, const std::vector<char>& data) {
    transport_.Send(peer, tag, data.data(), data.size(), Begin());
  }
  void Receive(int peer, Tag tag, std::vector<char>& data) {
    transport_.Receive(peer, tag, data.data(), data.size(), Begin());
  }

  absl::Status Wait(absl::Time deadline) {
    transport_.Help([this] { return Ended(); });
    bool ended = false;
    {
      absl::MutexLock lock(&mutex_);
      ended = AwaitUntil(mutex_, absl::Condition(this, &Operations::Ended), deadline);
    }
    if (!ended) transport_.Abort(absl::DeadlineExceededError("the peer does not answer in time"));
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Operations::Ended));
    return status_;
  }

 private:
  Transport::Done Begin() {
    left_.fetch_add(1, std::memory_order_relaxed);
    return [this](absl::Status status) {
      absl::MutexLock lock(&mutex_);
      status_.Update(std::move(status));
      left_.fetch_sub(1, std::memory_order_release);
    };
  }
  bool Ended() const { return left_.load(std::memory_order_acquire) == 0; }

  Transport& transport_;
  absl::Mutex mutex_;
  std::atomic<int> left_ = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

absl::Status SendTo(Transport& self, int peer, Tag tag, const std::vector<char>& data,
                    absl::Time deadline) {
  Operations operations(self);
  {
    const Transport::Batch batch(self);
    operations.Send(peer, tag, data);
  }
  return operations.Wait(deadline);
}

absl::Status ReceiveFrom(Transport& self, int peer, Tag tag, std::vector<char>& data,
                         absl::Time deadline) {
  Operations operations(self);
  operations.Receive(peer, tag, data);
  return operations.Wait(deadline);
}

// Messages of one size to the peer, which waits for them, each answered by an empty one.
absl::StatusOr<Nanos> LeadSize(Transport& self, int peer, int64_t size, int repeats,
                               absl::Time deadline) {
  const std::vector<char> data(static_cast<size_t>(size), 1);
  std::vector<char> answer;
  std::vector<Nanos> times;
  for (int i = 0; i < repeats; ++i) {
    std::this_thread::sleep_for(kPause);
    const Clock::time_point start = Clock::now();
    RETURN_IF_ERROR(SendTo(self, peer, kData, data, deadline));
    RETURN_IF_ERROR(ReceiveFrom(self, peer, kAnswer, answer, deadline));
    times.push_back(Since(start));
  }
  return Typical(std::move(times));
}

absl::StatusOr<std::vector<MessageTime>> Lead(Transport& self, int peer, absl::Time deadline) {
  ASSIGN_OR_RETURN(const Nanos empty, LeadSize(self, peer, 0, kSizes[0].repeats, deadline));
  std::vector<MessageTime> times;
  for (const auto& [size, repeats] : kSizes) {
    ASSIGN_OR_RETURN(const Nanos time, LeadSize(self, peer, size, repeats, deadline));
    // The message takes no less than its empty answer.
    times.push_back({Bytes(size), std::max(time / 2, time - empty / 2)});
  }
  return times;
}

absl::Status Follow(Transport& self, int peer, absl::Time deadline) {
  const auto follow = [&](int64_t size, int repeats) -> absl::Status {
    std::vector<char> data(static_cast<size_t>(size));
    const std::vector<char> answer;
    for (int i = 0; i < repeats; ++i) {
      RETURN_IF_ERROR(ReceiveFrom(self, peer, kData, data, deadline));
      RETURN_IF_ERROR(SendTo(self, peer, kAnswer, answer, deadline));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(follow(0, kSizes[0].repeats));
  for (const auto& [size, repeats] : kSizes) RETURN_IF_ERROR(follow(size, repeats));
  return absl::OkStatus();
}

// `count` messages of one size to and from every peer, all posted at once.
absl::Status ExchangeWithAll(Transport& self, const std::vector<int>& peers, int64_t size,
                             int count, absl::Time deadline) {
  const auto bytes = static_cast<size_t>(size);
  const std::vector<char> out(bytes, 1);
  std::vector<std::vector<char>> in(peers.size() * static_cast<size_t>(count),
                                    std::vector<char>(bytes));
  Operations operations(self);
  for (size_t i = 0; i < in.size(); ++i) {
    const int peer = peers[i % peers.size()];
    operations.Receive(peer, kData, in[i]);
    operations.Send(peer, kData, out);
  }
  return operations.Wait(deadline);
}

// The shortest of the times that some blocks take: the one that other programs disturbed least.
absl::StatusOr<Nanos> Fastest(const std::function<absl::StatusOr<Nanos>()>& block) {
  Nanos least = std::numeric_limits<Nanos>::max();
  for (int i = 0; i < kBlocks; ++i) {
    ASSIGN_OR_RETURN(const Nanos time, block());
    least = std::min(least, time);
  }
  return least;
}

Nanos ProcessorTime() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return Nanos(int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec);
}

struct Units {
  Nanos each = 0;  // Processor time.
  double core_share = 0;
};

// Processor time leaves out what other programs take, and what sharing cores with the other devices
// costs, which follows from their number.
absl::StatusOr<Units> TimeUnits(const std::function<void()>& unit, absl::Time deadline) {
  unit();
  const Clock::time_point start = Clock::now();
  const Nanos before = ProcessorTime();
  int64_t units = 0;
  do {
    if (SteadyNow() > deadline) return absl::DeadlineExceededError("work takes too long");
    unit();
    ++units;
  } while (Clock::now() - start < kWorkTime);
  const Nanos processor = ProcessorTime() - before;
  return Units{processor / units,
               static_cast<double>(processor) / static_cast<double>(Since(start))};
}

// Rounds of work whose messages go on meanwhile, as activations and gradients do: by how much each
// message makes them longer at each of its ends.
class BusyMessages {
 public:
  BusyMessages(Transport& self, const std::vector<int>& peers, const std::function<void()>& work,
               absl::Time deadline)
      : self_(self), peers_(peers), work_(work), deadline_(deadline) {}

  absl::Status AddTo(CrowdTimes& times) {
    constexpr int64_t kNone = -1;
    Nanos none = 0, small = 0, large = 0;
    for (int block = 0; block < kBlocks; ++block) {
      for (const auto& [size, least] :
           {std::pair(kNone, &none), std::pair(kSmall, &small), std::pair(kActivation, &large)}) {
        ASSIGN_OR_RETURN(const Nanos time, Block(size));
        *least = block == 0 ? time : std::min(*least, time);
      }
    }
    const auto ends = static_cast<int64_t>(2 * peers_.size());
    times.message = std::max<Nanos>(1, (small - none) / ends);
    times.large_message = std::max(times.message, (large - none) / ends);
    times.large_size = Bytes(kActivation);
    return absl::OkStatus();
  }

 private:
  // The time of a round whose messages are of `size` bytes; without messages if that is negative.
  absl::StatusOr<Nanos> Block(int64_t size) {
    RETURN_IF_ERROR(ExchangeWithAll(self_, peers_, 0, 1, deadline_));
    const auto bytes = static_cast<size_t>(std::max<int64_t>(size, 0));
    const std::vector<char> out(bytes, 1);
    std::vector<std::vector<char>> in(peers_.size() * kRoundsOfBlock, std::vector<char>(bytes));
    Operations operations(self_);
    const Clock::time_point start = Clock::now();
    for (size_t round = 0; round < kRoundsOfBlock; ++round) {
      if (size >= 0) Exchange(operations, out, &in[round * peers_.size()]);
      work_();
    }
    const Nanos time = Since(start) / kRoundsOfBlock;
    RETURN_IF_ERROR(operations.Wait(deadline_));
    return time;
  }

  // One message to and one from each peer, into `in`, begun as a pass begins them.
  void Exchange(Operations& operations, const std::vector<char>& out, std::vector<char>* in) {
    const Transport::Batch batch(self_);
    for (size_t i = 0; i < peers_.size(); ++i) {
      operations.Receive(peers_[i], kData, in[i]);
      operations.Send(peers_[i], kData, out);
    }
  }

  Transport& self_;
  const std::vector<int>& peers_;
  const std::function<void()>& work_;
  const absl::Time deadline_;
};

// Sums of little on a thread of their own, as the engine makes them, while this one works.
absl::StatusOr<Nanos> TimeReduction(Transport& self, const std::vector<int>& peers,
                                    const std::function<void()>& work, absl::Time deadline) {
  std::vector<int> devices = peers;
  devices.push_back(self.device());
  std::sort(devices.begin(), devices.end());
  const auto hops = static_cast<int64_t>(kReductions * 2 * peers.size());
  absl::Status status;
  Nanos time = 0;
  std::atomic<bool> ended = false;
  std::thread sums([&] {
    std::vector<float> values(kReduced * devices.size(), 1);
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kReductions && status.ok(); ++i) {
      status = AllReduceSum(self, devices, kSum, values.data(), values.size(), Element::kFloat32,
                            deadline);
    }
    time = Since(start);
    ended.store(true);
  });
  while (!ended.load()) work();
  sums.join();
  RETURN_IF_ERROR(status);
  return time / hops;
}

}  // namespace

absl::StatusOr<std::vector<MessageTime>> ProbeLink(Transport& self, int peer, absl::Time deadline) {
  if (self.device() < peer) {
    ASSIGN_OR_RETURN(std::vector<MessageTime> times, Lead(self, peer, deadline));
    RETURN_IF_ERROR(Follow(self, peer, deadline));
    return times;
  }
  RETURN_IF_ERROR(Follow(self, peer, deadline));
  return Lead(self, peer, deadline);
}

absl::StatusOr<CrowdTimes> ProbeCrowd(Transport& self, const std::vector<int>& peers,
                                      const WorkUnits& work, absl::Time deadline) {
  CrowdTimes times;
  const auto meet = [&] { return ExchangeWithAll(self, peers, 0, 1, deadline); };
  RETURN_IF_ERROR(meet());
  ASSIGN_OR_RETURN(const Units products, TimeUnits(work.product, deadline));
  times.product = products.each;
  times.core_share = products.core_share;
  RETURN_IF_ERROR(meet());
  ASSIGN_OR_RETURN(const Units copies, TimeUnits(work.copy, deadline));
  times.copy = copies.each;
  if (peers.empty()) return times;
  RETURN_IF_ERROR(meet());
  const auto rounds = [&]() -> absl::StatusOr<Nanos> {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kRoundsOfBlock; ++i) {
      work.product();
      RETURN_IF_ERROR(ExchangeWithAll(self, peers, kSmall, 1, deadline));
    }
    return Since(start) / kRoundsOfBlock;
  };
  const auto sending = [&]() -> absl::StatusOr<Nanos> {
    const Clock::time_point start = Clock::now();
    RETURN_IF_ERROR(ExchangeWithAll(self, peers, kLarge, kLargeMessages, deadline));
    return Since(start);
  };
  ASSIGN_OR_RETURN(times.round, Fastest(rounds));
  ASSIGN_OR_RETURN(times.sending, Fastest(sending));
  times.sent = Bytes(kLarge * kLargeMessages * static_cast<int64_t>(peers.size()));
  RETURN_IF_ERROR(BusyMessages(self, peers, work.product, deadline).AddTo(times));
  RETURN_IF_ERROR(meet());
  ASSIGN_OR_RETURN(times.reduction, TimeReduction(self, peers, work.product, deadline));
  return times;
}

}  // namespace stagewright
