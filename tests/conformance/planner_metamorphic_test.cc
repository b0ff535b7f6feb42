// What may never make an answer slower: more memory, one more device, faster links, faster devices,
// a permission more; what twice the model may take at most; and that another order of the operators
// changes nothing. No planner is told; each problem is solved twice.
//
// Searches are heuristics and not monotone: what is held is how many of their answers get slower,
// and by how much at most. 300 pairs by default, fewer for "auto", which takes longer;
// STAGEWRIGHT_METAMORPHIC_PROBLEMS sets another number for all, 3,000 for a long run, and then what
// each relation came to is printed. docs/planners/auto.md has the figures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "tests/conformance/metamorphic_relations.h"
#include "tests/conformance/planner_suite.h"

namespace stagewright {
namespace {

using testing::OwnedProblem;
using testing::ProblemPair;
using testing::Relation;

// So much slower counts as equal.
constexpr double kTolerance = 1.005;

const char* Asked() { return std::getenv("STAGEWRIGHT_METAMORPHIC_PROBLEMS"); }

struct Limits {
  int32_t problems = 300;
  double share_worse = 0.02;  // Share of the answers compared.
  double worst = 1.3;         // The slowest over what it should not exceed.
};

Limits LimitsFor(const std::string& planner) {
  Limits limits;
  if (Asked() != nullptr) limits.worst = 1.55;  // It meets problems that the short form does not.
  // One of these pairs: of many, one or two in a hundred are slower (docs/planners/auto.md).
  if (planner == "auto") limits = {48, 0.03, 1.05};
  if (Asked() != nullptr) limits.problems = std::max(1, std::atoi(Asked()));
  return limits;
}

// What answers to the pairs of a relation came to.
struct Tally {
  int32_t compared = 0;
  int32_t worse = 0;
  double worst = 1;
  std::string which;  // The worst.

  void Add(double ratio, const std::string& name) {
    ++compared;
    if (ratio > kTolerance) ++worse;
    if (ratio <= worst) return;
    worst = ratio;
    which = name;
  }
};

class PlannerMetamorphicTest : public PlannerSuite {
 protected:
  // The front door judges the answer.
  static Nanos Time(const OwnedProblem& owned) {
    PlanRequest request = owned.request();
    request.planner = GetParam().name;
    SearchContext context;
    const auto response = SolvePlan(request, context);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() && response->best ? response->best->evaluation.iteration_time : Nanos(0);
  }

  // Whether the planner can be asked for both.
  static bool IsFor(const Planner& planner, const Relation& relation, const ProblemPair& pair) {
    // It takes all devices that there are, a slow one as well.
    if (planner.name() == "data-parallel" && relation.name == std::string("one more device")) {
      return false;
    }
    return CheckAbilities(pair.harder.options, planner.name(), planner.abilities()).ok() &&
           CheckAbilities(pair.easier.options, planner.name(), planner.abilities()).ok();
  }

  // Solves the pair and adds what it says, if anything.
  static void Compare(const Planner& planner, const Relation& relation, int32_t index,
                      Tally& tally) {
    const auto pair = testing::MakePair(relation, index);
    if (!IsFor(planner, relation, *pair)) return;
    const Nanos before = Time(pair->harder);
    if (before == 0) return;
    const Nanos after = Time(pair->easier);
    const std::string name = testing::NameOfProblem(index) + ", " + relation.name;
    EXPECT_GT(after, 0) << name;
    if (after == 0) return;
    const double most = pair->times * static_cast<double>(before) + static_cast<double>(pair->more);
    const double ratio = static_cast<double>(after) / most;
    tally.Add(relation.same ? std::max(ratio, 1 / ratio) : ratio, name);
    if (Asked() != nullptr && ratio > kTolerance) {
      std::printf("%s: %.4f, %s\n", planner.name().c_str(), ratio, name.c_str());
      std::fflush(stdout);
    }
  }
};

void Print(const std::string& planner, const char* relation, const Tally& tally) {
  std::printf("%s | %s | %d | %d | %.4f | %s\n", planner.c_str(), relation, tally.compared,
              tally.worse, tally.worst, tally.which.c_str());
  std::fflush(stdout);
}

TEST_P(PlannerMetamorphicTest, LittleThatHelpsMakesItSlower) {
  const auto planner = GetParam().make();
  const Limits limits = LimitsFor(planner->name());
  const auto relations = testing::Relations();
  std::vector<Tally> tallies(relations.size());
  // Each pair has a problem of its own: one whose answer is slow would else count under many
  // relations.
  for (int32_t i = 0; i < limits.problems; ++i) {
    const size_t r = i % relations.size();
    Compare(*planner, relations[r], i + i / static_cast<int32_t>(relations.size()), tallies[r]);
  }
  Tally all;
  for (size_t r = 0; r < relations.size(); ++r) {
    const Tally& tally = tallies[r];
    if (Asked() != nullptr) Print(planner->name(), relations[r].name, tally);
    if (relations[r].same) {
      EXPECT_EQ(tally.worse, 0) << tally.which;
    }
    all.compared += tally.compared;
    all.worse += tally.worse;
    if (tally.worst > all.worst)
      std::tie(all.worst, all.which) = std::tie(tally.worst, tally.which);
  }
  ASSERT_GT(all.compared, 0);
  RecordProperty("compared", all.compared);
  RecordProperty("worse", all.worse);
  RecordProperty("worst", std::to_string(all.worst));
  EXPECT_LE(all.worse, limits.share_worse * all.compared);
  EXPECT_LE(all.worst, limits.worst) << all.which;
}

INSTANTIATE_TEST_SUITE_P(Planners, PlannerMetamorphicTest,
                         ::testing::ValuesIn(RegisteredPlanners().begin(),
                                             RegisteredPlanners().end()),
                         SuiteName);

}  // namespace
}  // namespace stagewright
