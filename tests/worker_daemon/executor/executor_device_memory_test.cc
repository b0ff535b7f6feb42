// Devices whose accelerators are one group move tensors and sums of gradients past host memory.
// The accelerators here are the processor, so what moves the memory is a copy.
#include <gtest/gtest.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/mixed_models.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/transport/copy_mover.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/transport/routing/routing_transport.h"

namespace stagewright::testing {
namespace {

// Counts what it moves.
class CountingMover : public DeviceMover {
 public:
  CountingMover(std::atomic<int>* messages, std::atomic<int>* reductions)
      : messages_(messages), reductions_(reductions) {}

  absl::StatusOr<std::string> MakeNote() override { return mover_->MakeNote(); }
  absl::Status Connect(int self, const std::vector<int>& devices, const std::string& note,
                       absl::Time deadline) override {
    return mover_->Connect(self, devices, note, deadline);
  }
  absl::Status OpenCollectives(const std::vector<std::vector<int>>& lists,
                               absl::Time deadline) override {
    return mover_->OpenCollectives(lists, deadline);
  }
  std::shared_ptr<void> Mark() override { return mover_->Mark(); }
  bool Passed(const std::shared_ptr<void>& mark) override { return mover_->Passed(mark); }
  absl::StatusOr<uint64_t> Start(const std::vector<MoverPart>& parts) override {
    for (const MoverPart& part : parts)
      ++*(part.kind == MoverPart::Kind::kReduce ? reductions_ : messages_);
    return mover_->Start(parts);
  }
  absl::StatusOr<std::vector<uint64_t>> Ended() override { return mover_->Ended(); }
  void InterruptAt(absl::Time when) override { mover_->InterruptAt(when); }
  void Stop() override { mover_->Stop(); }

 private:
  const std::unique_ptr<DeviceMover> mover_ = MakeCopyMover();
  std::atomic<int>* const messages_;
  std::atomic<int>* const reductions_;
};

TEST(DeviceMemory, TrainsTheSameAsHostMemory) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    DeviceJob spec = ClassifierJob("device_memory", /*dropout=*/true, 4);
    spec.training.max_gradient_norm = 1;  // So that all devices are peers of all.
    UsePlan(
        spec,
        {.stages = 2 + static_cast<int>(seed % 3), .most_replicas = 1 + static_cast<int>(seed % 2)},
        seed, seed == 3 ? OptimizerSharding::kStates : OptimizerSharding::kNone);
    const auto expected = TrainLocally(spec);
    ASSERT_TRUE(expected.ok()) << expected.status();

    std::atomic<int> messages = 0, reductions = 0;
    const auto accelerated =
        [&](const TransportIdentity& identity) -> absl::StatusOr<std::unique_ptr<Transport>> {
      RoutingOptions options;
      options.mover = std::make_unique<CountingMover>(&messages, &reductions);
      options.accelerator = absl::StrCat("copied ", identity.device);
      return RoutingTransport::Create(identity, std::move(options));
    };
    const auto result = TrainLocally(spec, {}, accelerated);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_GT(messages, 0);
    const bool replicated =
        std::any_of(spec.program->reductions.begin(), spec.program->reductions.end(),
                    [](const Reduction& reduction) { return !reduction.gradient_norm; });
    EXPECT_EQ(reductions > 0, replicated);
    EXPECT_EQ(result->losses.size(), expected->losses.size());
    for (const auto& [name, value] : expected->parameters)
      EXPECT_LT(RelativeError(result->parameters.at(name), value), 1e-5) << name;
  }
}

}  // namespace
}  // namespace stagewright::testing
