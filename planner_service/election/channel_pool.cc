#include "planner_service/election/channel_pool.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"

namespace stagewright {

struct ChannelPool::State {
  struct Entry {
    std::shared_ptr<grpc::Channel> channel;
    int calls = 0;
  };

  std::shared_ptr<grpc::Channel> Add() {
    absl::MutexLock lock(&mutex);
    const auto less = [](const Entry& a, const Entry& b) { return a.calls < b.calls; };
    auto entry = std::find_if(entries.begin(), entries.end(),
                              [](const Entry& one) { return one.calls < kCalls; });
    if (entry == entries.end() && entries.size() < kMost)
      entry = entries.insert(entry, Entry{open(), 0});
    if (entry == entries.end()) entry = std::min_element(entries.begin(), entries.end(), less);
    ++entry->calls;
    return entry->channel;
  }

  void Remove(const std::shared_ptr<grpc::Channel>& channel) {
    absl::MutexLock lock(&mutex);
    --std::find_if(entries.begin(), entries.end(), [&](const Entry& one) {
        return one.channel == channel;
      })->calls;
    // The next call finds a connection: the first stays, and so does one that alone has room.
    const auto rooms = std::count_if(entries.begin(), entries.end(),
                                     [](const Entry& one) { return one.calls < kCalls; });
    const auto empty = std::find_if(entries.begin() + 1, entries.end(),
                                    [](const Entry& one) { return one.calls == 0; });
    if (rooms > 1 && empty != entries.end()) entries.erase(empty);
  }

  const Open open;
  absl::Mutex mutex;
  std::vector<Entry> entries ABSL_GUARDED_BY(mutex);
};

ChannelPool::ChannelPool(Open open) : state_(new State{std::move(open), {}, {}}) {}
ChannelPool::~ChannelPool() = default;

std::shared_ptr<grpc::Channel> ChannelPool::Take() {
  const std::shared_ptr<grpc::Channel> channel = state_->Add();
  // The same channel, which gives its place back when the last who holds it lets go.
  return {channel.get(),
          [state = state_, channel](grpc::Channel* /*unused*/) { state->Remove(channel); }};
}

size_t ChannelPool::size() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->entries.size();
}

}  // namespace stagewright
