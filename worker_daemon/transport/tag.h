// The names of messages between two devices of a job.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace stagewright {

// What a message is for. Keeps, for instance, the activations and gradients of a channel apart.
enum class Traffic : uint8_t {
  kActivation = 0,
  kGradient = 1,
  kReduction = 2,
  kState = 3,
  kArrangement = 4,  // Between transports that arrange messages over another (control_link.h).
};

// Names one message between an ordered pair of devices.
struct Tag {
  static constexpr uint32_t kMaxChannel = (1u << 20) - 1;
  uint32_t channel = 0;  // At most kMaxChannel.
  Traffic traffic = Traffic::kActivation;
  // Which message of the channel. Implementations may use the low 20 bits only, so that messages
  // of one channel that are more than a million apart must not be outstanding together.
  uint32_t sequence = 0;

  friend auto operator<=>(const Tag&, const Tag&) = default;
};

// "channel 3 gradient 7", for messages.
std::string ToString(const Tag& tag);

}  // namespace stagewright
