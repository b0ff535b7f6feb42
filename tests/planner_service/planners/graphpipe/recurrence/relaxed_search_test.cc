#include "planner_service/planners/graphpipe/recurrence/relaxed_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "planner_service/planners/graphpipe/recurrence/partition_search.h"
#include "tests/planner_service/planners/graphpipe/search_case.h"
#include "tests/support/clusters.h"
#include "tests/support/profiled_graphs.h"
#include "tests/support/random.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::SearchCase;
using testing::Uniform;
using testing::Work;

constexpr Bytes kUnit = kMiB;

Graph RandomChain(Rng& random) {
  std::vector<Work> nodes(Uniform(random, 2, 16));
  for (size_t v = 0; v < nodes.size(); ++v) {
    nodes[v].forward = Uniform(random, 1, 20) * kMicrosecond;
    nodes[v].backward = 2 * nodes[v].forward;
    nodes[v].activation_bytes = Uniform(random, 0, 3) * kUnit;
    nodes[v].parameter_bytes = Uniform(random, 0, 4) * kUnit;
    if (v > 0) nodes[v].after = {static_cast<int32_t>(v) - 1};
  }
  return testing::ProfiledGraph(nodes);
}

class RelaxedSearchTest : public ::testing::Test {
 protected:
  // Calls `check` with random chains, clusters and searches over them.
  template <typename Check>
  void ForRandomSearches(uint64_t seed, Check check) {
    Rng random(seed);
    const std::vector<StageConfig> configs = {{1, 1}, {2, 2}, {4, 1}};
    for (int round = 0; round < 60; ++round) {
      SCOPED_TRACE(round);
      const SearchCase c(RandomChain(random),
                         testing::FlatCluster(8, Uniform(random, 10, 80) * kUnit, 0, 5e10), 16);
      RelaxedSearch search(c.ranges, configs, Uniform(random, 0, 3) > 0, RecomputePolicy::kAllowed,
                           c.oracle.budget());
      check(random, c, search);
      if (HasFatalFailure()) return;
    }
  }
};

// The recurrence over every range, with what the ranges hold at the least.
std::vector<int32_t> EveryRange(const SearchCase& c, const RelaxedSearch& search, double t) {
  const int32_t n = c.oracle.size();
  std::vector<int32_t> least(n + 1, RelaxedSearch::kNone);
  least[0] = 0;
  for (int32_t end = 1; end <= n; ++end) {
    for (int32_t begin = 0; begin < end; ++begin) {
      for (const StageOption& option : search.options()) {
        double time = option.Compute(begin, end);
        const Bytes gradients = c.ranges.LeastGradients(begin, end);
        if (option.replicas > 1 && gradients > 0) {
          size_t doublings = 0;
          while ((1 << doublings) < option.replicas) ++doublings;
          const NetworkFacts::Sum& sum = c.ranges.network().sums[doublings];
          time += (sum.latency + sum.per_byte * static_cast<double>(gradients)) / 16;
        }
        const int64_t kept = option.recompute ? 1 : search.configs()[option.config].k;
        const Bytes memory = c.ranges.LeastResident(begin, end) +
                             kept * option.costs->Saved(begin, end) +
                             option.costs->Workspace(begin, end);
        if (time > t || memory > search.memory()) continue;
        least[end] = std::min(least[end], least[begin] + option.replicas);
      }
    }
  }
  return least;
}

double RandomTime(Rng& random, const RelaxedSearch& search) {
  return search.LowerBound(static_cast<int32_t>(Uniform(random, 1, 8))) *
         static_cast<double>(Uniform(random, 80, 250)) / 100;
}

TEST_F(RelaxedSearchTest, EqualsTheRecurrenceOverEveryRange) {
  int64_t found = 0, missing = 0;
  ForRandomSearches(61, [&](Rng& random, const SearchCase& c, RelaxedSearch& search) {
    // More times than are kept, in any order, and some again.
    std::vector<double> asked;
    for (int question = 0; question < 15; ++question) {
      const bool again = question % 3 == 2;
      const double t =
          again ? asked[Uniform(random, 0, std::ssize(asked) - 1)] : RandomTime(random, search);
      asked.push_back(t);
      const std::vector<int32_t> expected = EveryRange(c, search, t);
      ASSERT_EQ(search.Least(t), expected.back());
      ASSERT_EQ(search.before(), expected);
      ASSERT_EQ(search.After().front(), expected.back());
      ++(expected.back() < RelaxedSearch::kNone ? found : missing);
    }
  });
  EXPECT_GT(found, 150);
  EXPECT_GT(missing, 20);
}

TEST_F(RelaxedSearchTest, NoPartitionNeedsLess) {
  int64_t found = 0;
  ForRandomSearches(62, [&](Rng& random, const SearchCase& c, RelaxedSearch& search) {
    PartitionOptions options;
    options.recompute = RecomputePolicy::kAllowed;
    PartitionSearch real = c.Search(search.configs(), options);
    const double t = RandomTime(random, search);
    RelaxedSearch with_replicas(c.ranges, search.configs(), true, RecomputePolicy::kAllowed,
                                c.oracle.budget());
    const auto partition = real.Find(t, {8, 16});
    if (!partition.has_value()) return;
    ++found;
    EXPECT_LE(with_replicas.Least(t * kTimeSlack), partition->devices);
    EXPECT_LE(with_replicas.LowerBound(partition->devices), partition->bottleneck * kTimeSlack);
  });
  EXPECT_GT(found, 15);
}

TEST_F(RelaxedSearchTest, LeastTimeIsWhereTheDevicesBeginToDo) {
  constexpr double kPrecision = 1e-3;
  int64_t found = 0;
  ForRandomSearches(63, [&](Rng& random, const SearchCase& c, RelaxedSearch& search) {
    const auto devices = static_cast<int32_t>(Uniform(random, 1, 8));
    const double most = 4 * search.LowerBound(devices);
    const double time = search.LeastTime(devices, most, kPrecision, c.context);
    if (time > most) {
      EXPECT_GT(search.Least(most * kTimeSlack), devices);
      return;
    }
    ++found;
    EXPECT_LE(search.Least(time * kTimeSlack), devices);
    const double before = time / (1 + 2 * kPrecision);
    if (before < search.LowerBound(devices)) return;
    EXPECT_GT(search.Least(before), devices);
  });
  EXPECT_GT(found, 20);
}

}  // namespace
}  // namespace stagewright
