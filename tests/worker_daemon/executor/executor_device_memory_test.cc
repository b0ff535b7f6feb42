// Devices whose accelerators are one group move tensors and sums of gradients past host memory.
// The accelerators here are the processor, so what moves the memory is a copy.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/mixed_models.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/transport/copy_mover.h"
#include "tests/worker_daemon/transport/delegating_mover.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/transport/routing/routing_transport.h"

namespace stagewright::testing {
namespace {

// What went between devices.
struct Moved {
  std::atomic<int> messages = 0, reductions = 0;
  std::atomic<size_t> message_bytes = 0;
  std::atomic<int> edges = 0;  // Connected for messages; each way counts.
};

// Counts what it moves.
class CountingMover : public DelegatingMover {
 public:
  explicit CountingMover(Moved* moved) : DelegatingMover(MakeCopyMover()), moved_(moved) {}

  absl::Status Connect(const MoverGroup& group, const std::string& note,
                       absl::Time deadline) override {
    moved_->edges += static_cast<int>(group.partners.size());
    return DelegatingMover::Connect(group, note, deadline);
  }
  absl::StatusOr<uint64_t> Start(const std::vector<MoverPart>& parts) override {
    for (const MoverPart& part : parts) {
      ++(part.kind == MoverPart::Kind::kReduce ? moved_->reductions : moved_->messages);
      if (part.kind == MoverPart::Kind::kSend) moved_->message_bytes += part.bytes;
    }
    return DelegatingMover::Start(parts);
  }

 private:
  Moved* const moved_;
};

TransportFactory Counting(Moved& moved) {
  return [&moved](const TransportIdentity& identity) -> absl::StatusOr<std::unique_ptr<Transport>> {
    RoutingOptions options;
    options.mover = std::make_unique<CountingMover>(&moved);
    options.accelerator = absl::StrCat("copied ", identity.device);
    return RoutingTransport::Create(identity, std::move(options));
  };
}

TEST(DeviceMemory, TrainsTheSameAsHostMemory) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    DeviceJob spec = ClassifierJob("device_memory", /*dropout=*/true, 4);
    if (seed % 2 == 0) spec.training.max_gradient_norm = 1;
    UsePlan(
        spec,
        {.stages = 2 + static_cast<int>(seed % 3), .most_replicas = 1 + static_cast<int>(seed % 2)},
        seed,
        seed == 3   ? OptimizerSharding::kStates
        : seed == 5 ? OptimizerSharding::kGradients
                    : OptimizerSharding::kNone);
    const auto expected = TrainLocally(spec);
    ASSERT_TRUE(expected.ok()) << expected.status();

    Moved moved;
    const auto result = TrainLocally(spec, {}, Counting(moved));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_GT(moved.messages, 0);
    // Only what messages go over is connected beforehand; anything else the mover refuses.
    std::set<std::pair<DeviceId, DeviceId>> used;
    for (const Channel& channel : spec.program->channels) {
      if (channel.local()) continue;
      used.insert({channel.source, channel.target});
      used.insert({channel.target, channel.source});
    }
    EXPECT_EQ(moved.edges, static_cast<int>(used.size()));
    const bool replicated =
        std::any_of(spec.program->reductions.begin(), spec.program->reductions.end(),
                    [](const Reduction& reduction) { return !reduction.gradient_norm; });
    EXPECT_EQ(moved.reductions > 0, replicated);
    EXPECT_EQ(result->losses.size(), expected->losses.size());
    for (const auto& [name, value] : expected->parameters)
      EXPECT_LT(RelativeError(result->parameters.at(name), value), 1e-5) << name;
  }
}

// What plans and simulations count is what travels, whatever stages compute in.
TEST(DeviceMemory, MessagesAreAsLongAsThePlanSays) {
  for (const Precision precision : {Precision::kGraph, Precision::kBFloat16, Precision::kFloat16}) {
    SCOPED_TRACE(static_cast<int>(precision));
    DeviceJob spec = ClassifierJob("message_lengths", /*dropout=*/false, 3);
    spec.training.precision = precision;
    UsePlan(spec, {.stages = 3, .most_replicas = 2}, 5);
    Bytes planned = 0;
    for (const DeviceProgram& device : spec.program->devices) {
      for (const ProgramAction& entry : device.body) {
        if (!IsSend(entry.action.kind)) continue;
        const Channel& channel = spec.program->channels[entry.action.channel];
        if (channel.local()) continue;
        planned +=
            (entry.action.kind == ActionKind::kSendActivation ? channel.activation_bytes_per_sample
                                                              : channel.gradient_bytes_per_sample) *
            entry.action.samples.size();
      }
    }
    Moved moved;
    const auto result = TrainLocally(spec, {}, Counting(moved));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_GT(planned, Bytes(0));
    EXPECT_EQ(Bytes(static_cast<int64_t>(moved.message_bytes)), planned * spec.steps);
  }
}

}  // namespace
}  // namespace stagewright::testing
