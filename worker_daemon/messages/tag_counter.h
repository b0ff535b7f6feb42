// The tags of one kind of a program's messages.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "worker_daemon/transport/transport.h"

namespace stagewright {

// Numbers the messages of each channel and traffic in the order in which they start, which is the
// same at both ends. Not thread-safe for one channel and traffic: theirs start one at a time.
class TagCounter {
 public:
  // `first_channel` is added to the numbers of channels, of which there are `channels`: it keeps
  // the messages of several programs over one transport apart.
  TagCounter(uint32_t first_channel, size_t channels)
      : first_channel_(first_channel), messages_(channels) {}

  Tag Next(int32_t channel, Traffic traffic) {
    const uint32_t message = messages_[channel][static_cast<size_t>(traffic)]++;
    return {first_channel_ + static_cast<uint32_t>(channel), traffic, message % (1u << 20)};
  }

 private:
  uint32_t first_channel_;
  std::vector<std::array<uint32_t, 3>> messages_;  // So far, by channel and Traffic.
};

}  // namespace stagewright
