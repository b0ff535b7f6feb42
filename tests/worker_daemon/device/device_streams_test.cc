#include "worker_daemon/device/device_streams.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/worker_daemon/support/simulated_accelerator.h"

namespace stagewright::testing {
namespace {

constexpr int64_t kNumbers = 1000;
constexpr absl::Duration kAWhile = absl::Milliseconds(20);

at::Tensor On(at::Device device, double value) {
  return at::full({kNumbers}, value, at::TensorOptions(at::kDouble)).to(device);
}

at::Tensor OnHost(double value = -1) { return at::full({kNumbers}, value, at::kDouble); }

bool IsAll(const at::Tensor& tensor, double value) { return tensor.eq(value).all().item<bool>(); }

// Queues, on the compute stream, a pass that writes to a tensor; `kept` or not as LibTorch's
// operators: the memory is the caller's matter.
void QueueFill(const DeviceStreams& streams, const at::Tensor& tensor, double value) {
  QueueOn(*streams.compute(), [data = static_cast<double*>(tensor.data_ptr()), value] {
    std::fill(data, data + kNumbers, value);
  });
}

class DeviceStreamsTest : public ::testing::Test {
 protected:
  const at::Device device_ = at::Device("simulated:0");
  std::unique_ptr<DeviceStreams> streams_ = MakeDeviceStreams(device_);
};

TEST_F(DeviceStreamsTest, ScopesNestAndEnd) {
  const c10::impl::VirtualGuardImpl guard(device_.type());
  const c10::Stream before = guard.getStream(device_);
  {
    const DeviceStreams::Scope on(streams_.get());
    EXPECT_EQ(guard.getStream(device_), *streams_->compute());
    {
      const DeviceStreams::Scope again(streams_.get());
      const DeviceStreams::Scope none(nullptr);
      EXPECT_EQ(guard.getStream(device_), *streams_->compute());
    }
    EXPECT_EQ(guard.getStream(device_), *streams_->compute());
  }
  EXPECT_EQ(guard.getStream(device_), before);
  EXPECT_NE(*streams_->compute(), before);
}

TEST_F(DeviceStreamsTest, TwoAtATimeHaveTheirOwnAndLaterOnesUseThemAgain) {
  std::unique_ptr<DeviceStreams> other = MakeDeviceStreams(device_);
  const c10::Stream first = *streams_->compute(), second = *other->compute();
  EXPECT_NE(first, second);
  other.reset();
  EXPECT_EQ(*MakeDeviceStreams(device_)->compute(), second);
}

// What is sent is what the pass before the mark made, though it is late and though the next pass
// has been queued behind it.
TEST_F(DeviceStreamsTest, CopiesOutWhenThePassHasEnded) {
  const DeviceStreams::Scope on(streams_.get());
  at::Tensor made = On(device_, 0);
  const at::Tensor host = OnHost();
  absl::Notification copied;
  {
    std::optional<Hold> pass(*streams_->compute());
    QueueFill(*streams_, made, 7);
    const DeviceStreams::Mark end = streams_->Record();
    const Hold next(*streams_->compute());
    streams_->CopyOut(
        end, [kept = std::move(made)] { return kept; }, host,
        [&](const absl::Status& status) {
          EXPECT_EQ(status, absl::OkStatus());
          copied.Notify();
        });
    EXPECT_FALSE(copied.WaitForNotificationWithTimeout(kAWhile));
    EXPECT_TRUE(IsAll(host, -1));
    pass.reset();
    copied.WaitForNotification();  // The next pass is still there.
  }
  EXPECT_TRUE(IsAll(host, 7));
}

TEST_F(DeviceStreamsTest, WhatIsCopiedOutLivesUntilThen) {
  const DeviceStreams::Scope on(streams_.get());
  for (int i = 0; i < 50; ++i) {
    at::Tensor host = OnHost();
    const auto* data = static_cast<const double*>(host.data_ptr());
    at::Tensor part = On(device_, 3);
    absl::Notification copied;
    streams_->CopyOut(
        nullptr, [kept = std::move(part)] { return kept; }, std::move(host),
        [&](const absl::Status&) {
          // Nobody else knows of the host's memory, too.
          EXPECT_EQ(data[kNumbers - 1], 3);
          copied.Notify();
        });
    copied.WaitForNotification();
  }
}

TEST_F(DeviceStreamsTest, CopyOutThatThrowsReportsNothing) {
  bool called = false;
  EXPECT_THROW(streams_->CopyOut(
                   nullptr, []() -> at::Tensor { TORCH_CHECK(false, "no memory"); }, OnHost(),
                   [&](const absl::Status&) { called = true; }),
               c10::Error);
  streams_.reset();
  EXPECT_FALSE(called);
}

// A message comes while the pass before is under way, and the pass that needs it waits.
TEST_F(DeviceStreamsTest, CopiesInBesideCompute) {
  const DeviceStreams::Scope on(streams_.get());
  DeviceStreams::Arrived arrived;
  double seen = 0;
  {
    const Hold pass(*streams_->compute());
    arrived = streams_->CopyIn(OnHost(5));  // Nobody else has the host's memory.
    streams_->Await(arrived.ready);
    const at::Tensor& tensor = arrived.tensors[0];
    EXPECT_EQ(tensor.device(), device_);
    QueueOn(*streams_->compute(),
            [&seen, data = static_cast<const double*>(tensor.data_ptr())] { seen = data[9]; });
    // The copy needs no pass to end: somebody else sees it.
    const std::unique_ptr<DeviceStreams> other = MakeDeviceStreams(device_);
    other->Await(arrived.ready);
    absl::Notification come;
    QueueOn(*other->compute(), [&] { come.Notify(); });
    EXPECT_TRUE(come.WaitForNotificationWithTimeout(absl::Seconds(20)));
  }
  EXPECT_TRUE(IsAll(arrived.tensors[0].cpu(), 5));
  EXPECT_EQ(seen, 5);
}

TEST_F(DeviceStreamsTest, ComputeWaitsForWhatComesIn) {
  const DeviceStreams::Scope on(streams_.get());
  for (int i = 0; i < 50; ++i) {
    const DeviceStreams::Arrived arrived = streams_->CopyIn(OnHost(i));
    streams_->Await(arrived.ready);
    double seen = -1;
    QueueOn(*streams_->compute(), [&seen, data = static_cast<const double*>(
                                              arrived.tensors[0].data_ptr())] { seen = data[0]; });
    EXPECT_TRUE(IsAll(arrived.tensors[0].cpu(), i));
    EXPECT_EQ(seen, i);
  }
}

// The last pass that uses a message is queued; then it is let go of.
TEST_F(DeviceStreamsTest, WhatCameInIsNotUsedAgainBeforeThePassesOnIt) {
  const DeviceStreams::Scope on(streams_.get());
  double seen = 0;
  {
    const Hold pass(*streams_->compute());
    DeviceStreams::Arrived arrived = streams_->CopyIn(OnHost(5));
    streams_->Await(arrived.ready);
    QueueOn(*streams_->compute(), [&seen, data = static_cast<const double*>(
                                              arrived.tensors[0].data_ptr())] { seen = data[0]; });
    arrived = {};
    absl::SleepFor(kAWhile);
  }
  c10::impl::VirtualGuardImpl(device_.type()).synchronizeStream(*streams_->compute());
  EXPECT_EQ(seen, 5);
}

// Another device of the process hands a tensor over while its pass is under way.
void AdoptFrom(at::Device there, DeviceStreams& own) {
  const std::unique_ptr<DeviceStreams> other = MakeDeviceStreams(there);
  DeviceStreams::Mark made;
  at::Tensor tensor;
  double seen = 0;
  {
    const DeviceStreams::Scope on(other.get());
    tensor = On(there, 1);
  }
  at::Tensor undefined;
  {
    std::optional<Hold> pass(*other->compute());
    QueueFill(*other, tensor, 2);
    made = other->Record();
    const DeviceStreams::Scope on(&own);
    DeviceStreams::Arrived arrived = own.Adopt({std::move(tensor), undefined}, made);
    own.Await(arrived.ready);
    EXPECT_FALSE(arrived.tensors[1].defined());
    EXPECT_EQ(arrived.tensors[0].device(), own.compute()->device());
    QueueOn(*own.compute(),
            [&seen, data = static_cast<const double*>(arrived.tensors[0].data_ptr())] {
              absl::SleepFor(kAWhile);
              seen = data[kNumbers - 1];
            });
    absl::SleepFor(kAWhile);
  }  // Let go of by both ends, the pass that reads it under way or not.
  c10::impl::VirtualGuardImpl(there.type()).synchronizeStream(*own.compute());
  EXPECT_EQ(seen, 2);
}

TEST_F(DeviceStreamsTest, AdoptsWhatAnotherStreamOfTheDeviceMade) { AdoptFrom(device_, *streams_); }

TEST_F(DeviceStreamsTest, AdoptsWhatAnotherDeviceMade) {
  AdoptFrom(at::Device("simulated:1"), *streams_);
}

}  // namespace
}  // namespace stagewright::testing
