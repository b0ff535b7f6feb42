// What may never make an answer slower: more memory, one more device, faster links, a faster
// device, a permission more, a different numbering. No planner is told; each problem is solved
// twice.
//
// Searches are heuristics and not monotone: what is held is how many of their answers get slower,
// and by how much at most. 300 problems by default, fewer for "auto", which takes longer;
// STAGEWRIGHT_METAMORPHIC_PROBLEMS sets another number for all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "planner_service/search/judge.h"
#include "tests/conformance/planner_suite.h"
#include "tests/support/small_problems.h"

namespace stagewright {
namespace {

// So much slower counts as equal.
constexpr double kTolerance = 1.005;

struct Limits {
  int32_t problems = 300;
  double share_worse = 0.05;  // Share of the answers compared.
  double worst = 1.3;         // The slowest over what it should not exceed.
};

Limits LimitsFor(const std::string& planner) {
  Limits limits;
  if (planner == "auto") limits = {35, 0.12, 1.1};
  const char* set = std::getenv("STAGEWRIGHT_METAMORPHIC_PROBLEMS");
  if (set != nullptr) limits.problems = std::max(1, std::atoi(set));
  return limits;
}

// A problem whose cluster or graph differs from another's.
struct Variant {
  Graph graph;
  Cluster cluster;
  OperatorGraph operators;
  std::unique_ptr<CostModel> costs;
  PlanOptions options;
  int64_t mini_batch = 1;
  Optimizer optimizer = Optimizer::kSgd;

  Problem problem() const {
    return {&graph, &operators, &cluster, costs.get(), mini_batch, optimizer};
  }
};

Variant SameAs(const testing::SmallProblem& small) {
  Variant same{small.graph, small.cluster, small.operators, nullptr, {}};
  same.mini_batch = small.mini_batch;
  same.optimizer = small.optimizer;
  return same;
}

void SetCluster(ClusterData data, Variant& variant) {
  variant.cluster = Cluster::Create(std::move(data)).value();
}

void MoreMemory(Variant& easier) {
  ClusterData data = easier.cluster.data();
  for (Device& device : data.devices) device.memory *= 2;
  SetCluster(std::move(data), easier);
}

void FasterLinks(Variant& easier) {
  ClusterData data = easier.cluster.data();
  for (Link& link : data.links) link.bytes_per_second *= 1.5;
  SetCluster(std::move(data), easier);
}

void FasterDevices(Variant& easier) {
  ClusterData data = easier.cluster.data();
  for (DeviceKind& kind : data.kinds) kind.flops_per_second *= 1.25;
  SetCluster(std::move(data), easier);
}

// `variant` without its last device, which is the harder problem.
void OneDeviceLess(Variant& harder) {
  harder.cluster = Subcluster(harder.cluster, harder.cluster.size() - 1);
}

// The operators in another topological order, under other ids: every node that is ready comes last
// first.
void Renumber(Variant& other) {
  const GraphData data = other.graph.data();
  const auto n = static_cast<int32_t>(data.nodes.size());
  std::vector<int32_t> missing(n);
  for (int32_t v = 0; v < n; ++v) missing[v] = static_cast<int32_t>(data.nodes[v].after.size());
  std::vector<int32_t> order;
  std::vector<int32_t> ready;
  for (int32_t v = 0; v < n; ++v) {
    if (missing[v] == 0) ready.push_back(v);
  }
  while (!ready.empty()) {
    const auto last = std::max_element(ready.begin(), ready.end());
    const int32_t v = *last;
    ready.erase(last);
    order.push_back(v);
    for (int32_t w = 0; w < n; ++w) {
      const auto& after = data.nodes[w].after;
      missing[w] -= static_cast<int32_t>(std::count(after.begin(), after.end(), NodeId(v)));
      if (missing[w] == 0 && std::find(order.begin(), order.end(), w) == order.end() &&
          std::find(ready.begin(), ready.end(), w) == ready.end()) {
        ready.push_back(w);
      }
    }
  }
  std::vector<int32_t> place(n);
  for (int32_t i = 0; i < n; ++i) place[order[i]] = i;
  GraphData renumbered = data;
  for (int32_t i = 0; i < n; ++i) {
    renumbered.nodes[i] = data.nodes[order[i]];
    for (NodeId& before : renumbered.nodes[i].after) {
      before = NodeId(place[before.index()]);
    }
  }
  other.graph = Graph::Create(std::move(renumbered)).value();
  other.operators = OneOperatorPerNode(other.graph).value();
}

enum class Relation { kMemory, kLinks, kDevices, kOneDevice, kReplicas, kRecompute, kNumbers };
constexpr const char* kNames[] = {
    "twice the memory", "links half as fast again", "faster devices",   "one more device",
    "replicas allowed", "recomputation allowed",    "another numbering"};

class PlannerMetamorphicTest : public PlannerSuite {
 protected:
  static Nanos Time(const Planner& planner, Variant& variant) {
    variant.costs = std::make_unique<testing::RatedProfileCosts>(variant.graph);
    const Problem problem = variant.problem();
    SearchContext context;
    const auto outcome = planner.Solve(problem, variant.options, context);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    if (!outcome.ok() || !outcome->strategy) return 0;
    const auto verdict = VerdictOn(problem, *outcome->strategy);
    EXPECT_TRUE(verdict.ok() && verdict->time) << verdict.status();
    return verdict.ok() && verdict->time ? *verdict->time : Nanos(0);
  }

  // The harder and the easier of two problems.
  static std::pair<Variant, Variant> Pair(Relation relation, const testing::SmallProblem& small) {
    std::pair<Variant, Variant> pair{SameAs(small), SameAs(small)};
    auto& [harder, easier] = pair;
    if (relation == Relation::kMemory) MoreMemory(easier);
    if (relation == Relation::kLinks) FasterLinks(easier);
    if (relation == Relation::kDevices) FasterDevices(easier);
    if (relation == Relation::kOneDevice && harder.cluster.size() > 1) OneDeviceLess(harder);
    if (relation == Relation::kReplicas) harder.options.allow_replicas = false;
    if (relation == Relation::kRecompute) harder.options.recompute = RecomputePolicy::kNever;
    if (relation == Relation::kNumbers) Renumber(easier);
    return pair;
  }
};

TEST_P(PlannerMetamorphicTest, LittleThatHelpsMakesItSlower) {
  const auto planner = GetParam().make();
  const Limits limits = LimitsFor(planner->name());
  int32_t worse = 0;
  int32_t compared = 0;
  double worst = 1;
  std::string which;
  for (int32_t i = 0; i < limits.problems; ++i) {
    const auto relation = static_cast<Relation>(i % static_cast<int32_t>(std::size(kNames)));
    // It takes all devices that there are, a slow one as well.
    if (relation == Relation::kOneDevice && planner->name() == "data-parallel") continue;
    const auto small = testing::MakeSmallProblem(i % testing::kSmallProblems);
    auto [harder, easier] = Pair(relation, *small);
    if (!CheckAbilities(harder.options, planner->name(), planner->abilities()).ok()) continue;
    const Nanos before = Time(*planner, harder);
    const Nanos after = Time(*planner, easier);
    if (before == 0) continue;
    EXPECT_GT(after, 0) << small->name << ", " << kNames[static_cast<int32_t>(relation)];
    ++compared;
    const double ratio = static_cast<double>(after) / static_cast<double>(before);
    if (ratio > kTolerance) ++worse;
    if (ratio <= worst) continue;
    worst = ratio;
    which = small->name + ", " + kNames[static_cast<int32_t>(relation)];
  }
  ASSERT_GT(compared, 0);
  RecordProperty("compared", compared);
  RecordProperty("worse", worse);
  RecordProperty("worst", std::to_string(worst));
  EXPECT_LE(worse, limits.share_worse * compared);
  EXPECT_LE(worst, limits.worst) << which;
}

INSTANTIATE_TEST_SUITE_P(Planners, PlannerMetamorphicTest,
                         ::testing::ValuesIn(RegisteredPlanners().begin(),
                                             RegisteredPlanners().end()),
                         SuiteName);

}  // namespace
}  // namespace stagewright
