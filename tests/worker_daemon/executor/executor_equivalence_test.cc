// The loss does not depend on the plan: whatever the partition, micro-batching and replication,
// training gives the parameters of single-process PyTorch (design, the four ideas).
//
// Models, data and PyTorch's results come from tests/data/export_models.py.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/program/grid.h"
#include "common/program/trace.h"
#include "common/strategy/check_strategy.h"
#include "common/topology/cluster.h"
#include "common/topology/presets.h"
#include "tests/worker_daemon/support/local_training.h"
#include "tests/worker_daemon/support/plans/forced_strategies.h"
#include "tests/worker_daemon/support/plans/lowered_programs.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "tests/worker_daemon/support/test_models.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright::testing {
namespace {

constexpr int64_t kMiniBatch = 16;
constexpr int64_t kSteps = 5;

// Strategies of 1 to 6 stages, 1 to 8 micro-batches (per stage, equal or not), 1 to 3 replicas,
// graph or sequential, on devices of their own or shared.
std::vector<StrategyShape> Shapes() {
  std::vector<StrategyShape> shapes;
  for (int stages = 1; stages <= 6; ++stages) {
    for (int64_t micro_batches : {1, 2, 4, 8}) {
      shapes.push_back({.stages = stages, .micro_batches = micro_batches});
    }
    shapes.push_back({.stages = stages});
    shapes.push_back({.stages = stages, .most_replicas = 3});
    shapes.push_back({.stages = stages, .most_replicas = 3, .same_micro_batch = true});
    shapes.push_back({.stages = stages, .kind = StrategyKind::kSequential});
    shapes.push_back({.stages = stages, .most_replicas = 3, .kind = StrategyKind::kSequential});
    shapes.push_back({.stages = stages, .most_replicas = 2, .share_devices = true});
    shapes.push_back({.stages = stages, .most_replicas = 2, .recompute = true});
  }
  return shapes;
}

// The largest relative error over the parameters, in the Euclidean norm of each.
double LargestError(const std::map<std::string, at::Tensor>& found,
                    const std::map<std::string, at::Tensor>& expected, std::string& where) {
  double largest = 0;
  for (const auto& [name, tensor] : expected) {
    const auto own = found.find(name);
    if (own == found.end()) {
      where = name + " (missing)";
      return std::numeric_limits<double>::infinity();
    }
    const double error = tensor.is_floating_point() ? RelativeError(own->second, tensor)
                                                    : (at::equal(own->second, tensor) ? 0.0 : 1.0);
    if (!(error <= largest)) {
      largest = error;
      where = name;
    }
  }
  return largest;
}

std::vector<double> ReferenceLosses(const std::string& stem) {
  std::ifstream file(stem + ".json");
  return nlohmann::json::parse(file)["losses"].get<std::vector<double>>();
}

class Equivalence : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { at::set_num_threads(1); }

  // Trains with every shape and compares with `expected`.
  void CompareAll(const Model& model, Optimizer optimizer,
                  const std::map<std::string, at::Tensor>& expected,
                  const std::vector<double>& losses) {
    const auto cluster = ClusterPreset("cpu:32");
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    std::mt19937_64 random(7);
    for (const StrategyShape& shape : Shapes()) {
      const Strategy strategy = ForceStrategy(*model.graph, shape, random);
      const absl::Status valid = CheckStrategy(*model.graph, *cluster, strategy);
      ASSERT_TRUE(valid.ok()) << valid;
      const auto programs = LowerBoth(*model.graph, strategy);
      ASSERT_TRUE(programs.ok()) << programs.status();
      const auto result = TrainLocally(JobOf(model, programs->training, optimizer, kSteps));
      SCOPED_TRACE(Grid(*programs->training));
      ASSERT_TRUE(result.ok()) << result.status();
      std::string where;
      EXPECT_LT(LargestError(result->parameters, expected, where), model.tolerance()) << where;
      ASSERT_EQ(result->losses.size(), losses.size());
      for (size_t i = 0; i < losses.size(); ++i) {
        EXPECT_NEAR(result->losses[i], losses[i], model.tolerance() * std::abs(losses[i])) << i;
      }
      const absl::Status trace = CheckTrace(*programs->training, result->trace);
      EXPECT_TRUE(trace.ok()) << trace;
      ++compared_;
    }
  }

  int compared_ = 0;
};

class EveryPlan : public Equivalence, public ::testing::WithParamInterface<std::string> {
 protected:
  void CompareWithPyTorch(const char* dtype, Optimizer optimizer) {
    const Model model = LoadModel(absl::StrCat(GetParam(), "_", dtype));
    const std::string stem = ModelPath(
        absl::StrCat(model.name, ".reference.", optimizer == Optimizer::kSgd ? "sgd" : "adam"));
    const auto expected = ReadTensors(stem + ".safetensors");
    ASSERT_TRUE(expected.ok()) << expected.status();
    CompareAll(model, optimizer, *expected, ReferenceLosses(stem));
  }
};

// Each type and each optimizer on every shape; the other two pairs are for the long run.
TEST_P(EveryPlan, TrainsAsPyTorchDoes) {
  ASSERT_NO_FATAL_FAILURE(CompareWithPyTorch("f64", Optimizer::kAdam));
  ASSERT_NO_FATAL_FAILURE(CompareWithPyTorch("f32", Optimizer::kSgd));
  EXPECT_EQ(compared_, 2 * static_cast<int>(Shapes().size()));
}

TEST_P(EveryPlan, LongTrainsAsPyTorchDoes) {
  ASSERT_NO_FATAL_FAILURE(CompareWithPyTorch("f64", Optimizer::kSgd));
  ASSERT_NO_FATAL_FAILURE(CompareWithPyTorch("f32", Optimizer::kAdam));
  EXPECT_EQ(compared_, 2 * static_cast<int>(Shapes().size()));
}

class Dropout : public Equivalence {
 protected:
  void CompareWithOneDevice(const char* name) {
    const Model model = LoadModel(name);
    std::mt19937_64 random(1);
    const auto whole =
        LowerBoth(*model.graph, ForceStrategy(*model.graph, {.micro_batches = 1}, random));
    ASSERT_TRUE(whole.ok()) << whole.status();
    const DeviceJob spec = JobOf(model, whole->training, Optimizer::kSgd, kSteps);
    const auto reference = TrainLocally(spec);
    ASSERT_TRUE(reference.ok()) << reference.status();
    CompareAll(model, Optimizer::kSgd, reference->parameters, reference->losses);
    // The reference has dropout: other masks make other parameters.
    const auto other = TrainLocally(spec, [](DeviceJob& own) { own.seed = 43; });
    ASSERT_TRUE(other.ok()) << other.status();
    std::string where;
    EXPECT_GT(LargestError(other->parameters, reference->parameters, where), 1e-3);
  }
};

TEST_F(Dropout, IsThatOfOneDevice) { CompareWithOneDevice("dropout_f64"); }

TEST_F(Dropout, LongIsThatOfOneDevice) { CompareWithOneDevice("dropout_f32"); }

// What the comparison is worth: a loss that counts too much by a thousandth is noticed.
TEST_F(Equivalence, AWrongLossScaleIsNoticed) {
  for (const char* name : {"chain_f64", "chain_f32", "shared_f64"}) {
    const Model model = LoadModel(name);
    const auto expected = ReadTensors(ModelPath(model.name + ".reference.sgd.safetensors"));
    ASSERT_TRUE(expected.ok());
    std::mt19937_64 random(1);
    const auto programs = LowerBoth(
        *model.graph, ForceStrategy(*model.graph, {.stages = 3, .micro_batches = 4}, random));
    ASSERT_TRUE(programs.ok());
    for (const double weight : {1.0, 1.001}) {
      const auto result = TrainLocally(JobOf(model, programs->training, Optimizer::kSgd, kSteps),
                                       [&](DeviceJob& spec) { spec.loss_weight = weight; });
      ASSERT_TRUE(result.ok()) << result.status();
      std::string where;
      const double error = LargestError(result->parameters, *expected, where);
      if (weight == 1.0) {
        EXPECT_LT(error, model.tolerance()) << where;
      } else {
        EXPECT_GT(error, 3 * model.tolerance());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EveryPlan,
                         ::testing::Values("chain", "two_branches", "four_branches", "skip", "tied",
                                           "shared", "conv", "transformer", "frozen"),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace stagewright::testing
