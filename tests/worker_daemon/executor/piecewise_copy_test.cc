#include "worker_daemon/executor/piecewise_copy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/worker_daemon/support/simulated_accelerator.h"
#include "worker_daemon/device/device_streams.h"

namespace stagewright::testing {
namespace {

at::Device Device() { return at::Device("simulated:0"); }

TEST(PiecewiseCopy, CopiesTensorsOfAnySizeAndForm) {
  PiecewiseCopy copy(/*piece=*/Bytes(48));
  std::vector<at::Tensor> tensors;
  for (const int64_t size : {0, 1, 11, 12, 13, 24, 100}) tensors.push_back(at::rand({size}));
  tensors.push_back(at::rand({}));
  tensors.push_back(at::rand({5, 7}).t());
  tensors.push_back(at::rand({3, 9}).to(at::kBFloat16));
  tensors.push_back(at::arange(20));
  for (const at::Tensor& tensor : tensors) {
    for (const at::Tensor& source : {tensor, tensor.to(Device())}) {
      const at::Tensor host = copy.ToHost(source);
      EXPECT_TRUE(host.is_cpu() && host.is_contiguous());
      EXPECT_EQ(host.scalar_type(), tensor.scalar_type());
      EXPECT_TRUE(at::equal(host, tensor)) << tensor.sizes();
    }
  }
}

TEST(PiecewiseCopy, SharesNothing) {
  at::Tensor tensor = at::zeros({4});
  const at::Tensor host = PiecewiseCopy().ToHost(tensor);
  tensor.fill_(1);
  EXPECT_TRUE(host.eq(0).all().item<bool>());
}

// The device comes to what is queued only later.
TEST(PiecewiseCopy, WaitsForWhatIsQueued) {
  const auto streams = MakeDeviceStreams(Device());
  const DeviceStreams::Scope on(streams.get());
  const at::Tensor tensor = at::zeros({100}).to(Device());
  for (const float value : {1.0f, 2.0f, 3.0f}) {
    QueueOn(*streams->compute(), [data = static_cast<float*>(tensor.data_ptr()), value] {
      std::fill(data, data + 100, value);
    });
    EXPECT_TRUE(PiecewiseCopy(Bytes(64)).ToHost(tensor).eq(value).all().item<bool>());
  }
}

}  // namespace
}  // namespace stagewright::testing
