// The 64 bits by which UCX matches messages, from the high ones: generation 8, sending device 12,
// traffic 4, channel 20, sequence 20.
#pragma once

#include <cstdint>

namespace stagewright {

// Traffic of control messages (ucx_control_line.h), whose channel is their type. No Traffic of a
// Tag has this number.
inline constexpr uint32_t kUcxControlTraffic = 15;

struct UcxTag {
  uint64_t generation = 0;
  int sender = 0;  // Device.
  uint32_t traffic = 0;
  uint32_t channel = 0;
  uint32_t sequence = 0;

  friend bool operator==(const UcxTag&, const UcxTag&) = default;
};

// Takes the low bits of each field, as many as have room.
uint64_t PackUcxTag(const UcxTag& tag);
UcxTag UnpackUcxTag(uint64_t bits);

// The bits as those of no control message: the others are left as they are.
uint64_t WithoutControlTraffic(uint64_t bits);

// The bits in which all control messages of a generation are equal.
uint64_t UcxControlMask();

}  // namespace stagewright
