#include "planner_service/registry/transport_key.h"

#include "gtest/gtest.h"

namespace stagewright {
namespace {

RegisteredDevice DeviceOf(const std::string& worker, bool proves_key) {
  RegisteredDevice device;
  device.worker = worker;
  device.device.set_name("cpu0");
  device.proves_key = proves_key;
  return device;
}

TEST(NewTransportKey, IsOfThirtyTwoBytesAndAnotherEachTime) {
  const std::vector<RegisteredDevice> registered = {DeviceOf("w0", true), DeviceOf("w1", true)};
  const std::string key = NewTransportKey(registered, {"w0/cpu0", "w1/cpu0"});
  EXPECT_EQ(key.size(), 32);
  EXPECT_NE(key, std::string(32, '\0'));
  EXPECT_NE(key, NewTransportKey(registered, {"w0/cpu0", "w1/cpu0"}));
}

TEST(NewTransportKey, IsEmptyWhereOneWorkerDoesNotKnowOfKeys) {
  const std::vector<RegisteredDevice> registered = {DeviceOf("w0", true), DeviceOf("old", false)};
  EXPECT_EQ(NewTransportKey(registered, {"w0/cpu0", "old/cpu0"}), "");
  EXPECT_EQ(NewTransportKey(registered, {"w0/cpu0", "gone/cpu0"}), "");
  EXPECT_EQ(NewTransportKey(registered, {"w0/cpu0"}).size(), 32);
}

}  // namespace
}  // namespace stagewright
