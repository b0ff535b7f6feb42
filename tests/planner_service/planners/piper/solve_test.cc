#include "planner_service/planners/piper/solve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/support/random.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::Uniform;

PiperProblem RandomProblem(Rng& random) {
  PiperProblem problem;
  const auto n = static_cast<int32_t>(Uniform(random, 1, 6));
  std::vector<Dag::Edge> edges;
  for (int32_t v = 1; v < n; ++v) {
    for (int32_t u = 0; u < v; ++u) {
      if (Uniform(random, 0, 2) == 0) edges.emplace_back(u, v);
    }
  }
  problem.dag = *Dag::Create(n, edges);
  for (const auto& [u, v] : edges) {
    problem.edges.push_back({u, v, static_cast<double>(Uniform(random, 0, 40))});
  }
  const bool tensor_parallel = Uniform(random, 0, 2) == 0;
  for (int32_t v = 0; v < n; ++v) {
    std::vector<PiperMode>& modes = problem.modes.emplace_back();
    for (int32_t degree : {1, 2}) {
      if (degree == 2 && (!tensor_parallel || Uniform(random, 0, 4) == 0)) continue;
      PiperMode mode;
      mode.degree = degree;
      mode.keep = {static_cast<double>(Uniform(random, 0, 30)),
                   static_cast<double>(Uniform(random, 0, 30)),
                   static_cast<double>(Uniform(random, 0, 20))};
      if (Uniform(random, 0, 2) > 0) {
        mode.recompute = mode.keep;
        mode.recompute->time += static_cast<double>(Uniform(random, 0, 10));
        mode.recompute->per_micro_batch /= 4;
        mode.recompute->fixed += static_cast<double>(Uniform(random, 0, 10));
      }
      mode.parameter_bytes = static_cast<double>(Uniform(random, 0, 100));
      for (const auto& [u, w] : edges) {
        if (w == v && degree == 2) mode.sync_from.emplace_back(u, Uniform(random, 0, 9));
        if (u == v && degree == 2) mode.sync_to.emplace_back(w, Uniform(random, 0, 9));
      }
      modes.push_back(std::move(mode));
    }
  }
  problem.micro_batches = Uniform(random, 1, 2) * 4;
  problem.devices = static_cast<int32_t>(Uniform(random, 1, 5));
  problem.memory = static_cast<double>(Uniform(random, 20, 300));
  problem.bandwidth = static_cast<double>(Uniform(random, 1, 20));
  problem.recompute_by_stage = Uniform(random, 0, 2) == 0;
  problem.inputs_in_memory = Uniform(random, 0, 2) == 0;
  return problem;
}

// The least objective, one stage after the other from the sources, every choice tried.
class Exhaustive {
 public:
  explicit Exhaustive(const PiperProblem& problem) : problem_(problem) {}

  double Run() {
    Extend(0, problem_.devices);
    return best_;
  }

 private:
  void Extend(uint32_t done, int32_t devices) {
    if (done == (uint32_t{1} << problem_.dag.size()) - 1) {
      Judge(0);
      return;
    }
    for (uint32_t next = 1; next < (uint32_t{1} << problem_.dag.size()); ++next) {
      if ((next & done) != 0 || !Closed(done | next)) continue;
      PiperStage stage;
      for (int32_t v = 0; v < problem_.dag.size(); ++v) {
        if (((next >> v) & 1) != 0) stage.operators.push_back(v);
      }
      stage.recompute.resize(stage.operators.size());
      for (stage.degree = 1; stage.degree <= 2; ++stage.degree) {
        if (!std::all_of(stage.operators.begin(), stage.operators.end(), [&](int32_t v) {
              return FindMode(problem_, v, stage.degree) != nullptr;
            })) {
          continue;
        }
        for (stage.replicas = 1; stage.replicas * stage.degree <= devices; ++stage.replicas) {
          if (problem_.micro_batches % stage.replicas != 0) continue;
          partition_.push_back(stage);
          Extend(done | next, devices - stage.replicas * stage.degree);
          partition_.pop_back();
        }
      }
    }
  }

  bool Closed(uint32_t set) const {
    for (const auto& [u, v] : problem_.dag.Edges()) {
      if (((set >> v) & 1) != 0 && ((set >> u) & 1) == 0) return false;
    }
    return true;
  }

  // The best choices of the stages from `s` on are independent of each other.
  void Judge(size_t s) {
    double objective = 0;
    for (; s < partition_.size(); ++s) {
      PiperStage& stage = partition_[s];
      double best = std::numeric_limits<double>::infinity();
      const size_t n = stage.operators.size();
      for (uint32_t mask = 0; mask < (uint32_t{1} << n); ++mask) {
        if (!Choose(mask, stage)) continue;
        if (PiperStageMemory(problem_, partition_, s) > problem_.memory) continue;
        best = std::min(best, PiperStageTime(problem_, stage));
      }
      stage.recompute.assign(n, false);
      objective = std::max(objective, best);
    }
    best_ = std::min(best_, objective);
  }

  bool Choose(uint32_t mask, PiperStage& stage) const {
    bool any = false;
    bool all = true;
    for (size_t i = 0; i < stage.operators.size(); ++i) {
      const bool can = FindMode(problem_, stage.operators[i], stage.degree)->recompute.has_value();
      stage.recompute[i] = ((mask >> i) & 1) != 0;
      if (stage.recompute[i] && !can) return false;
      any = any || stage.recompute[i];
      all = all && (stage.recompute[i] || !can);
    }
    return !problem_.recompute_by_stage || !any || all;
  }

  const PiperProblem& problem_;
  PiperPartition partition_;
  double best_ = std::numeric_limits<double>::infinity();
};

void ExpectValid(const PiperProblem& problem, const PiperAnswer& answer) {
  int32_t devices = 0;
  std::vector<int32_t> stage_of(problem.dag.size(), -1);
  for (size_t s = 0; s < answer.partition->size(); ++s) {
    const PiperStage& stage = (*answer.partition)[s];
    devices += stage.replicas * stage.degree;
    EXPECT_EQ(problem.micro_batches % stage.replicas, 0);
    EXPECT_LE(PiperStageMemory(problem, *answer.partition, s), problem.memory * (1 + 1e-9));
    for (int32_t op : stage.operators) {
      EXPECT_EQ(stage_of[op], -1);
      stage_of[op] = static_cast<int32_t>(s);
    }
  }
  EXPECT_LE(devices, problem.devices);
  for (const auto& [u, v] : problem.dag.Edges()) EXPECT_LE(stage_of[u], stage_of[v]);
  EXPECT_EQ(std::count(stage_of.begin(), stage_of.end(), -1), 0);
  EXPECT_NEAR(PiperObjective(problem, *answer.partition), answer.objective,
              1e-9 * answer.objective);
}

TEST(PiperSolveTest, EqualsExhaustiveSearch) {
  Rng random(7);
  int feasible = 0;
  int infeasible = 0;
  for (int i = 0; i < 250; ++i) {
    SCOPED_TRACE(i);
    const PiperProblem problem = RandomProblem(random);
    const PiperAnswer answer = SolvePiper(problem, {}, SearchContext());
    const double best = Exhaustive(problem).Run();
    ASSERT_TRUE(answer.lattice);
    ASSERT_EQ(answer.partition.has_value(), best < 1e300);
    if (!answer.partition) {
      ++infeasible;
      continue;
    }
    ++feasible;
    ExpectValid(problem, answer);
    EXPECT_NEAR(answer.objective, best, 1e-6 * best + 1e-12);
    const PiperAnswer linear = SolvePiper(problem, {.downsets = 0}, SearchContext());
    EXPECT_FALSE(linear.lattice);
    if (!linear.partition) continue;
    ExpectValid(problem, linear);
    EXPECT_GE(linear.objective, answer.objective * (1 - 1e-9));
  }
  EXPECT_GT(feasible, 100);
  EXPECT_GT(infeasible, 10);
}

PiperProblem Chain(int32_t length, int32_t devices) {
  PiperProblem problem;
  std::vector<Dag::Edge> edges;
  for (int32_t v = 0; v < length; ++v) {
    if (v > 0) edges.emplace_back(v - 1, v);
    if (v > 0) problem.edges.push_back({v - 1, v, 1});
    PiperMode mode;
    mode.keep = {1.0 + v % 3, 1, 0};
    mode.parameter_bytes = 1e9;
    problem.modes.push_back({mode});
  }
  problem.dag = *Dag::Create(length, edges);
  problem.micro_batches = 8;
  problem.devices = devices;
  problem.memory = 1e6;
  problem.bandwidth = 1e9;
  return problem;
}

TEST(PiperSolveTest, KeepsToTheNumberOfStagesAskedFor) {
  const PiperProblem problem = Chain(9, 4);
  for (int32_t stages = 1; stages <= 4; ++stages) {
    const PiperAnswer exact =
        SolvePiper(problem, {.min_stages = stages, .max_stages = stages}, SearchContext());
    ASSERT_TRUE(exact.partition);
    EXPECT_EQ(exact.partition->size(), static_cast<size_t>(stages));
  }
  EXPECT_FALSE(SolvePiper(problem, {.min_stages = 5, .max_stages = 5}, SearchContext()).partition);
  const PiperAnswer alone = SolvePiper(problem, {.most_replicas = 1}, SearchContext());
  for (const PiperStage& stage : *alone.partition) EXPECT_EQ(stage.replicas, 1);
}

TEST(PiperSolveTest, TooManyDownsetsLeaveTopologicalOrders) {
  // 60 operators without an edge: 2^60 downsets.
  PiperProblem problem = Chain(60, 4);
  problem.dag = *Dag::Create(60, {});
  problem.edges.clear();
  const PiperAnswer answer = SolvePiper(problem, {}, SearchContext());
  EXPECT_FALSE(answer.lattice);
  EXPECT_FALSE(answer.expired);
  ASSERT_TRUE(answer.partition);
  EXPECT_NEAR(answer.objective, 120.0 / 4, 1);
}

TEST(PiperSolveTest, ExpiredContextsEndTheSearch) {
  const PiperAnswer answer =
      SolvePiper(Chain(50, 8), {}, SearchContext(SearchContext::Clock::now()));
  EXPECT_TRUE(answer.expired);
  EXPECT_FALSE(answer.partition);
}

}  // namespace
}  // namespace stagewright
