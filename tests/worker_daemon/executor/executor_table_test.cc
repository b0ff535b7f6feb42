// Every synchronous schedule on every pair of transports trains as one process does.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/base/status.h"
#include "common/policies/breadth_first.h"
#include "common/policies/early_backward.h"
#include "common/policies/looped.h"
#include "common/policies/zero_bubble.h"
#include "common/strategy/in_flight.h"
#include "common/strategy/orders.h"
#include "tests/worker_daemon/support/plans/forced_strategies.h"
#include "tests/worker_daemon/support/schedule_table.h"

namespace stagewright::testing {
namespace {

constexpr int64_t kMiniBatch = 16;
constexpr int kStages = 4;

// Schedules that come as orders of devices need equal micro-batches.
bool HasOrders(const std::string& schedule) {
  return schedule == "Looped" || schedule == "BreadthFirst" || schedule == "ZbH1" ||
         schedule == "ZbV";
}

// The group of devices that a stage runs on: with several stages on a device, in rounds or as a V.
int GroupOf(const std::string& schedule, int stage, int stages) {
  if (schedule == "Looped" || schedule == "BreadthFirst") return stage % ((stages + 1) / 2);
  if (schedule == "ZbV") return std::min(stage, stages - 1 - stage);
  return stage;
}

void Place(const Combination& combination, Strategy& strategy) {
  const auto stages = static_cast<int>(strategy.stages.size());
  for (int s = 0; s < stages; ++s) {
    Stage& stage = strategy.stages[static_cast<size_t>(s)];
    const bool other = combination.uneven && s % 2 == 1;
    stage.micro_batch = other && !HasOrders(combination.schedule) ? 8 : 4;
    stage.recompute = combination.recompute;
    stage.devices.clear();
    const int group = GroupOf(combination.schedule, s, stages);
    int replicas = combination.replicas;
    if (other && HasOrders(combination.schedule) && replicas > 1) --replicas;
    for (int r = 0; r < replicas; ++r) stage.devices.emplace_back(group * combination.replicas + r);
  }
}

// Stages from each to a sink, itself included.
std::vector<int32_t> Depths(const Strategy& strategy) {
  std::vector<int32_t> depth(strategy.stages.size(), 1);
  for (size_t s = depth.size(); s-- > 0;) {
    for (const StageEdge& edge : strategy.edges) {
      if (edge.from.index() == s) depth[s] = std::max(depth[s], depth[edge.to.index()] + 1);
    }
  }
  return depth;
}

// A stage holds no less than one that reads it needs, whatever the policy says for a chain.
void SetEarlyBackward(const std::string& schedule, Strategy& strategy) {
  AssignInFlight(strategy);
  const std::vector<int32_t> depth = Depths(strategy);
  for (size_t s = 0; s < depth.size(); ++s) {
    Stage& stage = strategy.stages[s];
    const int64_t most = kMiniBatch / stage.micro_batch;
    const int64_t own = schedule == "Pa" ? PaInFlight(depth[s], most) : PbInFlight(depth[s], most);
    stage.schedule.in_flight = std::max(stage.schedule.in_flight, own * stage.micro_batch);
  }
}

absl::StatusOr<std::vector<DeviceOrder>> OrdersOf(const std::string& schedule, const Graph& graph,
                                                  const Strategy& strategy) {
  if (schedule == "Looped") return LoopedOrders(graph, strategy, {.loop_batch = 2, .prefetch = {}});
  if (schedule == "BreadthFirst") return BreadthFirstOrders(graph, strategy);
  return schedule == "ZbH1" ? ZeroBubbleH1Orders(graph, strategy)
                            : ZeroBubbleVOrders(graph, strategy);
}

absl::Status SetSchedule(const std::string& schedule, const Graph& graph, Strategy& strategy) {
  if (HasOrders(schedule)) {
    AssignInFlight(strategy);
    ASSIGN_OR_RETURN(std::vector<DeviceOrder> orders, OrdersOf(schedule, graph, strategy));
    SetOrders(graph, std::move(orders), strategy);
    return absl::OkStatus();
  }
  if (schedule == "Pa" || schedule == "Pb") {
    SetEarlyBackward(schedule, strategy);
    return absl::OkStatus();
  }
  for (Stage& stage : strategy.stages) stage.schedule.k = schedule == "KFkB" ? 2 : 1;
  AssignInFlight(strategy);
  if (schedule != "GPipe") return absl::OkStatus();
  for (Stage& stage : strategy.stages) stage.schedule.in_flight = kMiniBatch;
  return absl::OkStatus();
}

class Table : public ::testing::TestWithParam<Combination> {};

TEST_P(Table, TrainsAsOneProcessDoes) {
  const Combination& combination = GetParam();
  const Model model = LoadModel(combination.model + "_f64");
  std::mt19937_64 random(std::hash<std::string>()(combination.Name()));
  Strategy strategy = ForceStrategy(*model.graph, {.stages = kStages}, random);
  ASSERT_GE(strategy.stages.size(), 2u);
  Place(combination, strategy);
  const absl::Status set = SetSchedule(combination.schedule, *model.graph, strategy);
  ASSERT_TRUE(set.ok()) << set;
  ExpectTheSameTraining(model, strategy, combination.ways);
}

INSTANTIATE_TEST_SUITE_P(All, Table,
                         ::testing::ValuesIn(Combinations({"GPipe", "OneFOneB", "KFkB", "Looped",
                                                           "BreadthFirst", "Pa", "Pb", "ZbH1",
                                                           "ZbV"})),
                         [](const auto& param_info) { return param_info.param.Name(); });

}  // namespace
}  // namespace stagewright::testing
