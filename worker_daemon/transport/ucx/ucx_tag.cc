#include "worker_daemon/transport/ucx/ucx_tag.h"

namespace stagewright {
namespace {

constexpr int kSequenceBits = 20, kChannelBits = 20, kTrafficBits = 4, kSenderBits = 12;
constexpr int kGenerationBits = 8;
constexpr int kChannelAt = kSequenceBits;
constexpr int kTrafficAt = kChannelAt + kChannelBits;
constexpr int kSenderAt = kTrafficAt + kTrafficBits;
constexpr int kGenerationAt = kSenderAt + kSenderBits;
static_assert(kGenerationAt + kGenerationBits == 64);

uint64_t Field(uint64_t value, int bits, int at) {
  return (value & ((uint64_t{1} << bits) - 1)) << at;
}

uint64_t FieldOf(uint64_t tag, int bits, int at) { return tag >> at & ((uint64_t{1} << bits) - 1); }

}  // namespace

uint64_t PackUcxTag(const UcxTag& tag) {
  return Field(tag.generation, kGenerationBits, kGenerationAt) |
         Field(static_cast<uint64_t>(tag.sender), kSenderBits, kSenderAt) |
         Field(tag.traffic, kTrafficBits, kTrafficAt) |
         Field(tag.channel, kChannelBits, kChannelAt) | Field(tag.sequence, kSequenceBits, 0);
}

UcxTag UnpackUcxTag(uint64_t bits) {
  return {FieldOf(bits, kGenerationBits, kGenerationAt),
          static_cast<int>(FieldOf(bits, kSenderBits, kSenderAt)),
          static_cast<uint32_t>(FieldOf(bits, kTrafficBits, kTrafficAt)),
          static_cast<uint32_t>(FieldOf(bits, kChannelBits, kChannelAt)),
          static_cast<uint32_t>(FieldOf(bits, kSequenceBits, 0))};
}

// No Traffic has the highest bit.
uint64_t WithoutControlTraffic(uint64_t bits) { return bits & ~Field(8, kTrafficBits, kTrafficAt); }

uint64_t UcxControlMask() {
  return Field(~uint64_t{0}, kGenerationBits, kGenerationAt) |
         Field(~uint64_t{0}, kTrafficBits, kTrafficAt);
}

}  // namespace stagewright
