#include "common/wire/profile_proto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace stagewright {
namespace {

using ::testing::HasSubstr;

const ProfiledDevice kDevice{"cpu", "torch, 1 thread"};

MeasuredOperators Example() {
  return {{"a", {"2026-11-22", {{1, 9, 8, 5, 3, 2, 1}, {2, 10, 9, 5, 4, 4, 2}}}},
          {"b", {"2026-11-21", {{4, 1, 0, 0, 0, 0, 0}}}}};
}

TEST(ProfileProto, RoundTrips) {
  OperatorProfile profile;
  ASSERT_TRUE(Merge(ToProto(kDevice, Example()), profile).ok());
  ASSERT_EQ(profile.devices.size(), 1u);
  EXPECT_EQ(profile.devices.at(kDevice), Example());
}

TEST(ProfileProto, BadFiguresAreRefusedByOperatorAndField) {
  OperatorProfile profile;
  v1::DeviceProfile proto = ToProto(kDevice, Example());
  proto.mutable_operators(0)->mutable_samples(1)->set_kept_bytes(-1);
  EXPECT_THAT(Merge(proto, profile).message(), HasSubstr("operator \"a\", 2 samples: kept_bytes"));
  proto = ToProto(kDevice, Example());
  v1::OperatorMeasurement& sample = *proto.mutable_operators(0)->mutable_samples(0);
  sample.set_backward_input_ns(std::numeric_limits<int64_t>::max());
  sample.set_backward_weight_ns(std::numeric_limits<int64_t>::max());
  EXPECT_FALSE(Merge(proto, profile).ok());
  proto = ToProto(kDevice, Example());
  *proto.add_operators() = proto.operators(0);
  EXPECT_THAT(Merge(proto, profile).message(), HasSubstr("\"a\" is given twice"));
  EXPECT_TRUE(profile.empty());
}

}  // namespace
}  // namespace stagewright
