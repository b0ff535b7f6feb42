#include "worker_daemon/transport/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker_daemon/transport/transport.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

const TransportAddress kAddress{"ucx", {"lm", 2, 3}, std::string("a\0b", 3)};

std::string Refusal(const absl::StatusOr<TransportAddress>& address) {
  EXPECT_EQ(address.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(address.status().message());
}

TEST(Identity, IsOfADeviceThatTagsCanName) {
  EXPECT_EQ(ToString(kAddress.owner), "device 3 of job lm, generation 2");
  EXPECT_EQ(CheckIdentity({"lm", 0, 0}), absl::OkStatus());
  EXPECT_EQ(CheckIdentity({"lm", 0, Transport::kMaxDevice}), absl::OkStatus());
  EXPECT_EQ(CheckIdentity({"lm", 0, -1}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckIdentity({"lm", 0, Transport::kMaxDevice + 1}).message(),
            "device 4096 is not in 0..4095");
}

TEST(Address, RoundTrips) {
  for (const uint64_t generation : {uint64_t{0}, uint64_t{300}, ~uint64_t{0}}) {
    TransportAddress address = kAddress;
    address.owner.generation = generation;
    const auto decoded = DecodeAddress("ucx", EncodeAddress(address));
    ASSERT_EQ(decoded.status(), absl::OkStatus());
    EXPECT_EQ(decoded->scheme, "ucx");
    EXPECT_EQ(decoded->owner, address.owner);
    EXPECT_EQ(decoded->payload, address.payload);
  }
}

TEST(Address, IsRefusedWhenAnyByteIsDamagedOrMissing) {
  const std::string good = EncodeAddress(kAddress);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string damaged = good;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    EXPECT_EQ(Refusal(DecodeAddress("ucx", damaged)), "not a transport address") << i;
    EXPECT_EQ(Refusal(DecodeAddress("ucx", good.substr(0, i))), "not a transport address") << i;
  }
  EXPECT_EQ(Refusal(DecodeAddress("ucx", good + "x")), "not a transport address");
}

TEST(Address, OfAnotherTransportOrOwnerIsRefused) {
  const std::string bytes = EncodeAddress(kAddress);
  EXPECT_EQ(Refusal(DecodeAddress("local", bytes)),
            "an address for the ucx transport, not for the local one");
  EXPECT_EQ(DecodePeerAddress("ucx", {"lm", 2, 0}, 3, bytes).status(), absl::OkStatus());
  EXPECT_EQ(Refusal(DecodePeerAddress("ucx", {"lm", 2, 3}, 3, bytes)),
            "device 3 cannot connect to itself");
  EXPECT_EQ(Refusal(DecodePeerAddress("ucx", {"lm", 2, 0}, 1, bytes)),
            "address of device 1 of job lm, generation 2 is in truth that of device 3 of job lm, "
            "generation 2");
  EXPECT_THAT(Refusal(DecodePeerAddress("ucx", {"lm", 1, 0}, 3, bytes)), HasSubstr("in truth"));
  EXPECT_THAT(Refusal(DecodePeerAddress("ucx", {"vit", 2, 0}, 3, bytes)), HasSubstr("in truth"));
  EXPECT_EQ(Refusal(DecodePeerAddress("ucx", {"lm", 2, 0}, 3, "")),
            "address of device 3: not a transport address");
}

TEST(ConsumeString, TakesWhatAppendStringWroteAndNoMore) {
  std::string bytes;
  AppendString("first", &bytes);
  AppendString("", &bytes);
  bytes += "rest";
  absl::string_view in = bytes;
  std::string value;
  ASSERT_TRUE(ConsumeString(&in, &value));
  EXPECT_EQ(value, "first");
  ASSERT_TRUE(ConsumeString(&in, &value));
  EXPECT_EQ(value, "");
  EXPECT_EQ(in, "rest");
  EXPECT_FALSE(ConsumeString(&in, &value)) << "too short for a length";
  in = absl::string_view(bytes).substr(0, 10);
  EXPECT_FALSE(ConsumeString(&in, &value)) << "shorter than its length says";
}

}  // namespace
}  // namespace stagewright
