#include "tests/worker_daemon/support/schedule_table.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

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
#include "tests/worker_daemon/support/transports/pair_transport.h"
#include "tests/worker_daemon/support/transports/transport_factory.h"
#if STAGEWRIGHT_HAVE_UCX
#include "worker_daemon/transport/ucx/ucx_transport.h"
#endif

namespace stagewright::testing {
namespace {

constexpr int64_t kSteps = 5;  // As export_models.py.
constexpr double kTolerance = 1e-9;

#if STAGEWRIGHT_HAVE_UCX
TransportFactory Ucx(const std::string& tls) {
  return [tls](const TransportIdentity& identity) -> absl::StatusOr<std::unique_ptr<Transport>> {
    return UcxTransport::Create(identity, UcxOptions{.tls = tls});
  };
}
#endif

struct Expected {
  std::map<std::string, at::Tensor> parameters;
  std::vector<double> losses;
};

Expected OfPyTorch(const Model& model, const std::string& optimizer) {
  const std::string stem = ModelPath(absl::StrCat(model.name, ".reference.", optimizer));
  Expected expected;
  const auto parameters = ReadTensors(stem + ".safetensors");
  EXPECT_TRUE(parameters.ok()) << parameters.status();
  if (parameters.ok()) expected.parameters = *parameters;
  std::ifstream file(stem + ".json");
  expected.losses = nlohmann::json::parse(file)["losses"].get<std::vector<double>>();
  return expected;
}

Expected OfOneDevice(const Model& model, Optimizer optimizer) {
  std::mt19937_64 random(1);
  const auto programs =
      LowerBoth(*model.graph, ForceStrategy(*model.graph, {.micro_batches = 1}, random));
  EXPECT_TRUE(programs.ok()) << programs.status();
  const auto result = TrainLocally(JobOf(model, programs->training, optimizer, kSteps));
  EXPECT_TRUE(result.ok()) << result.status();
  return {result->parameters, result->losses};
}

}  // namespace

std::vector<Ways> AllWays() {
  std::vector<std::pair<std::string, TransportFactory>> transports = {
      {"Local", MakeLocalTransport}};
#if STAGEWRIGHT_HAVE_UCX
  transports.push_back({"Shm", Ucx("posix,self")});
  transports.push_back({"Tcp", Ucx("tcp,self")});
#endif
  std::vector<Ways> ways;
  for (size_t a = 0; a < transports.size(); ++a) {
    for (size_t b = a; b < transports.size(); ++b) {
      ways.push_back(
          {transports[a].first + transports[b].first, transports[a].second, transports[b].second});
    }
  }
  return ways;
}

std::string Combination::Name() const {
  return absl::StrCat(schedule, "_", ways.name, recompute ? "_Recompute" : "", "_Replicas",
                      replicas, uneven ? "_Uneven" : "", "_", model);
}

std::ostream& operator<<(std::ostream& out, const Combination& combination) {
  return out << combination.Name();
}

std::vector<Combination> Combinations(const std::vector<std::string>& schedules) {
  const std::vector<std::string> models = {"chain",       "two_branches", "four_branches",
                                           "skip",        "tied",         "shared",
                                           "transformer", "frozen",       "dropout"};
  const std::vector<Ways> ways = AllWays();
  std::vector<Combination> all;
  for (size_t s = 0; s < schedules.size(); ++s) {
    // Every choice of recomputation, replicas and sizes; twice as many as pairs of transports.
    for (size_t i = 0; i < 12; ++i) {
      all.push_back({schedules[s], ways[(i + i / 6 + s) % ways.size()], i % 2 == 1,
                     1 + static_cast<int>(i / 2 % 3), i / 6 == 1,
                     models[(s * 12 + i) % models.size()]});
    }
  }
  return all;
}

void ExpectTheSameTraining(const Model& model, const Strategy& strategy, const Ways& ways) {
  at::set_num_threads(1);
  const auto cluster = ClusterPreset("cpu:32");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  ASSERT_EQ(CheckStrategy(*model.graph, *cluster, strategy), absl::OkStatus());
  const auto programs = LowerBoth(*model.graph, strategy);
  ASSERT_TRUE(programs.ok()) << programs.status();
  SCOPED_TRACE(Grid(*programs->training));
  const bool adam = strategy.stages.size() % 2 == 0;
  const Optimizer optimizer = adam ? Optimizer::kAdam : Optimizer::kSgd;
  static std::map<std::pair<std::string, bool>, Expected> known;
  const auto [entry, is_new] = known.try_emplace({model.name, adam});
  if (is_new) {
    entry->second = model.name == "dropout_f64" ? OfOneDevice(model, optimizer)
                                                : OfPyTorch(model, adam ? "adam" : "sgd");
  }
  const Expected& expected = entry->second;
  const auto result = TrainLocally(JobOf(model, programs->training, optimizer, kSteps), {},
                                   [&](const TransportIdentity& identity) {
                                     return PairTransport::Create(identity, ways.near, ways.far);
                                   });
  ASSERT_TRUE(result.ok()) << result.status();
  for (const auto& [name, tensor] : expected.parameters) {
    ASSERT_TRUE(result->parameters.contains(name)) << name;
    if (!tensor.is_floating_point()) continue;
    EXPECT_LT(RelativeError(result->parameters.at(name), tensor), kTolerance) << name;
  }
  ASSERT_EQ(result->losses.size(), expected.losses.size());
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(result->losses[i], expected.losses[i], kTolerance * std::abs(expected.losses[i]))
        << i;
  }
  EXPECT_EQ(CheckTrace(*programs->training, result->trace), absl::OkStatus());
}

}  // namespace stagewright::testing
