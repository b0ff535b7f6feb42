#include "tests/worker_daemon/transport/copy_mover.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace stagewright::testing {
namespace {

constexpr size_t kChunk = size_t{1} << 20;

// A part on the board, until its counterpart has come and the data is over.
struct Posted {
  int device = 0;
  MoverPart part;
  bool ended = false;
};
using Handle = std::shared_ptr<Posted>;

// Where the movers of a group meet.
struct Board {
  absl::Mutex mutex;
  int met ABSL_GUARDED_BY(mutex) = 0;
  std::map<std::pair<int, int>, std::deque<Handle>> sends ABSL_GUARDED_BY(mutex);
  std::map<std::pair<int, int>, std::deque<Handle>> receives ABSL_GUARDED_BY(mutex);
  std::map<std::vector<int>, std::vector<Handle>> reductions ABSL_GUARDED_BY(mutex);
};

std::shared_ptr<Board> BoardOf(const std::string& note) {
  static auto* mutex = new absl::Mutex;
  static auto* boards = new std::map<std::string, std::weak_ptr<Board>>;
  absl::MutexLock lock(mutex);
  std::shared_ptr<Board> board = (*boards)[note].lock();
  if (board == nullptr) (*boards)[note] = board = std::make_shared<Board>();
  return board;
}

template <typename T>
void Sum(const std::vector<Handle>& members) {
  const MoverPart& part = members[0]->part;
  const size_t count = part.bytes / sizeof(T);
  const size_t chunk = count / part.devices.size();
  for (size_t i = 0; i < count; ++i) {
    T sum = 0;
    for (const Handle& member : members) sum += static_cast<T*>(member->part.data)[i];
    for (const Handle& member : members) {
      const bool gets =
          part.collective == Collective::kAllReduce || part.devices[i / chunk] == member->device;
      static_cast<T*>(member->part.data)[i] = gets ? sum : T(-1);
    }
  }
}

class CopyMover : public DeviceMover {
 public:
  ~CopyMover() override { Stop(); }

  absl::StatusOr<std::string> MakeNote() override {
    static std::atomic<int> next = 0;
    return absl::StrCat("board ", next++);
  }

  absl::Status Connect(const MoverGroup& group, const std::string& note,
                       absl::Time deadline) override {
    self_ = group.self;
    partners_ = {group.partners.begin(), group.partners.end()};
    board_ = BoardOf(note);
    {
      absl::MutexLock lock(&board_->mutex);
      ++board_->met;
    }
    const int all = static_cast<int>(group.devices.size());
    while (true) {
      {
        absl::MutexLock lock(&board_->mutex);
        if (board_->met >= all) break;
      }
      if (absl::ToUnixNanos(absl::Now()) >= interrupted_at_)
        return absl::UnavailableError("interrupted");
      if (absl::Now() > deadline) return absl::DeadlineExceededError("the others did not come");
      absl::SleepFor(absl::Milliseconds(1));
    }
    thread_ = std::thread([this] { Loop(); });
    return absl::OkStatus();
  }

  absl::Status OpenCollectives(const std::vector<std::vector<int>>& lists, absl::Time) override {
    for (const std::vector<int>& list : lists) opened_.insert(list);
    return absl::OkStatus();
  }

  std::shared_ptr<void> Mark() override { return std::make_shared<int>(); }
  bool Passed(const std::shared_ptr<void>&) override { return true; }

  absl::StatusOr<uint64_t> Start(const std::vector<MoverPart>& parts) override {
    int sends = 0;
    for (const MoverPart& part : parts) {
      CHECK(part.bytes > 0 && part.after != nullptr);
      CHECK(part.kind != MoverPart::Kind::kReduce ||
            (parts.size() == 1 && opened_.contains(part.devices)));
      CHECK(part.kind == MoverPart::Kind::kReduce || partners_.contains(part.peer));
      sends += part.kind == MoverPart::Kind::kSend;
    }
    CHECK(sends <= 1 && static_cast<int>(parts.size()) - sends <= 1);
    absl::MutexLock lock(&mutex_);
    rounds_.emplace_back(++last_, parts);
    return last_;
  }

  absl::StatusOr<std::vector<uint64_t>> Ended() override {
    absl::MutexLock lock(&mutex_);
    return std::exchange(ended_, {});
  }

  void InterruptAt(absl::Time when) override { interrupted_at_ = absl::ToUnixNanos(when); }

  void Stop() override {
    stopped_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Loop() {
    while (!stopped_) {
      std::pair<uint64_t, std::vector<MoverPart>> round;
      {
        absl::MutexLock lock(&mutex_);
        const auto ready = [](std::deque<std::pair<uint64_t, std::vector<MoverPart>>>* rounds) {
          return !rounds->empty();
        };
        if (!mutex_.AwaitWithTimeout(absl::Condition(+ready, &rounds_), absl::Milliseconds(1))) {
          continue;
        }
        round = std::move(rounds_.front());
        rounds_.pop_front();
      }
      if (Run(round.second)) {
        absl::MutexLock lock(&mutex_);
        ended_.push_back(round.first);
      }
    }
  }

  bool Run(const std::vector<MoverPart>& parts) {
    std::vector<Handle> handles;
    for (const MoverPart& part : parts) handles.push_back(Put(part));
    bool all = false;
    while (!all && !stopped_) {
      all = true;
      for (const Handle& handle : handles) {
        if (handle->part.kind == MoverPart::Kind::kReceive) Pull(handle);
        absl::MutexLock lock(&board_->mutex);
        all = all && handle->ended;
      }
      if (!all) std::this_thread::yield();
    }
    if (!all) {
      for (const Handle& handle : handles) Remove(handle);
    }
    return all;
  }

  Handle Put(const MoverPart& part) {
    auto handle = std::make_shared<Posted>(Posted{self_, part});
    absl::MutexLock lock(&board_->mutex);
    if (part.kind == MoverPart::Kind::kSend) {
      board_->sends[{self_, part.peer}].push_back(handle);
    } else if (part.kind == MoverPart::Kind::kReceive) {
      board_->receives[{part.peer, self_}].push_back(handle);
    } else {
      std::vector<Handle>& members = board_->reductions[part.devices];
      members.push_back(handle);
      if (members.size() == part.devices.size()) Reduce(part);
    }
    return handle;
  }

  void Reduce(const MoverPart& part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(board_->mutex) {
    std::vector<Handle> members = std::move(board_->reductions[part.devices]);
    std::sort(members.begin(), members.end(),
              [](const Handle& a, const Handle& b) { return a->device < b->device; });
    board_->reductions.erase(part.devices);
    if (part.collective == Collective::kAllGather) {
      Gather(part, members);
    } else if (part.element == Element::kFloat64) {
      Sum<double>(members);
    } else {
      CHECK(part.element == Element::kFloat32);
      Sum<float>(members);
    }
    for (const Handle& member : members) member->ended = true;
  }

  // From each its chunk, to all others.
  static void Gather(const MoverPart& part, const std::vector<Handle>& members) {
    const size_t chunk = part.bytes / part.devices.size();
    for (const Handle& from : members) {
      const auto place = std::find(part.devices.begin(), part.devices.end(), from->device);
      const size_t at = static_cast<size_t>(place - part.devices.begin()) * chunk;
      for (const Handle& to : members) {
        if (to == from) continue;
        std::memcpy(static_cast<char*>(to->part.data) + at,
                    static_cast<char*>(from->part.data) + at, chunk);
      }
    }
  }

  // The receiver copies, piece by piece, so that either end can stop in the middle.
  void Pull(const Handle& receive) {
    const std::pair<int, int> edge(receive->part.peer, self_);
    size_t at = 0;
    Handle send;
    while (!stopped_) {
      absl::MutexLock lock(&board_->mutex);
      std::deque<Handle>& sends = board_->sends[edge];
      std::deque<Handle>& receives = board_->receives[edge];
      if (receive->ended || sends.empty() || receives.front() != receive) return;
      if (send == nullptr) send = sends.front();
      if (send != sends.front()) return;  // Its owner gave up.
      CHECK(send->part.bytes == receive->part.bytes);
      const size_t bytes = std::min(kChunk, send->part.bytes - at);
      std::memcpy(static_cast<char*>(receive->part.data) + at,
                  static_cast<char*>(send->part.data) + at, bytes);
      at += bytes;
      if (at < send->part.bytes) continue;
      sends.pop_front();
      receives.pop_front();
      send->ended = receive->ended = true;
      return;
    }
  }

  void Remove(const Handle& handle) {
    absl::MutexLock lock(&board_->mutex);
    for (auto* sides : {&board_->sends, &board_->receives}) {
      for (auto& [edge, handles] : *sides) std::erase(handles, handle);
    }
    for (auto& [devices, members] : board_->reductions) std::erase(members, handle);
  }

  int self_ = 0;
  std::shared_ptr<Board> board_;
  std::set<std::vector<int>> opened_;
  std::set<int> partners_;  // Other edges are not warm.
  std::atomic<int64_t> interrupted_at_ = std::numeric_limits<int64_t>::max();
  std::atomic<bool> stopped_ = false;
  absl::Mutex mutex_;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::pair<uint64_t, std::vector<MoverPart>>> rounds_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> ended_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace

std::unique_ptr<DeviceMover> MakeCopyMover() { return std::make_unique<CopyMover>(); }

}  // namespace stagewright::testing
