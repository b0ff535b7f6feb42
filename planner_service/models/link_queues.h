// The links of a cluster, each of which carries one message at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace stagewright {

// Each link is a queue of its own: links in a row do not wait for each other. Time is that of the
// caller, ns.
template <typename Time>
class LinkQueues {
 public:
  // All links are free at time 0. O(links).
  void Reset(size_t links) { free_.assign(links, 0); }

  // When a message that takes `duration` and is there at `now`, no earlier than those asked about
  // before, has passed the link. O(1).
  Time Pass(int32_t link, Time now, Time duration) {
    return free_[link] = std::max(free_[link], now) + duration;
  }

 private:
  std::vector<Time> free_;  // By link.
};

}  // namespace stagewright
