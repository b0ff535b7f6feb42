// Jobs whose accelerators take each other's memory as it is, past the host, train as on the
// processor. Which accelerators: tested_accelerator.h.
#include <gtest/gtest.h>

#include "tests/worker_daemon/executor/accelerated_jobs.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/mixed_models.h"

namespace stagewright::testing {
namespace {

class AcceleratorMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    auto transports = TestedMemoryTransports();
    if (!transports.ok()) GTEST_SKIP() << transports.status();
    transports_ = *std::move(transports);
  }

  // The job under a plan of that shape, on accelerators and on processors.
  void ExpectTheSame(DeviceJob spec, StrategyShape shape, uint64_t seed,
                     OptimizerSharding sharding = OptimizerSharding::kNone) {
    UsePlan(spec, shape, seed, sharding);
    const auto expected = TrainLocally(spec);
    ASSERT_TRUE(expected.ok()) << expected.status();
    const auto found = TrainLocally(spec, &Accelerate, transports_);
    ASSERT_TRUE(found.ok()) << found.status();
    ExpectSameCounts(*found, *expected);
  }

  DeviceJob Job() const { return ClassifierJob("accelerator_memory", /*dropout=*/true, 3); }

 private:
  TransportFactory transports_;
};

TEST_F(AcceleratorMemory, TakesActivationsAndGradients) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    ExpectTheSame(Job(), {.stages = 2 + static_cast<int>(seed % 3)}, seed);
  }
}

TEST_F(AcceleratorMemory, TakesSumsOverReplicasAndTheNormOfAll) {
  DeviceJob spec = Job();
  spec.training.max_gradient_norm = 1;
  ExpectTheSame(spec, {.stages = 2, .most_replicas = 2}, 4);
}

TEST_F(AcceleratorMemory, TakesSharesOfOptimizerStates) {
  DeviceJob spec = Job();
  spec.training.optimizer.kind = Optimizer::kAdam;
  ExpectTheSame(spec, {.stages = 2, .most_replicas = 2}, 3, OptimizerSharding::kStates);
}

TEST_F(AcceleratorMemory, TakesSharesOfGradients) {
  DeviceJob spec = Job();
  spec.training.optimizer.kind = Optimizer::kAdam;
  spec.training.max_gradient_norm = 1;
  ExpectTheSame(spec, {.stages = 2, .most_replicas = 2}, 3, OptimizerSharding::kGradients);
}

TEST_F(AcceleratorMemory, TakesWhatIsComputedAgain) {
  ExpectTheSame(Job(), {.stages = 3, .recompute = true}, 5);
}

}  // namespace
}  // namespace stagewright::testing
