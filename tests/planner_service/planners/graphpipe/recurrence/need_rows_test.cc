#include "planner_service/planners/graphpipe/recurrence/need_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/strategy/in_flight.h"
#include "common/strategy/strategy.h"
#include "tests/support/random.h"

namespace stagewright {
namespace {

using testing::Rng;
using testing::Uniform;

constexpr int64_t kMiniBatch = 64;

std::vector<StageConfig> RandomConfigs(Rng& random) {
  std::vector<StageConfig> configs;
  for (int64_t count = Uniform(random, 2, 6); count > 0; --count) {
    configs.push_back({int64_t{1} << Uniform(random, 0, 4),
                       static_cast<int32_t>(int64_t{1} << Uniform(random, 0, 2))});
  }
  return configs;
}

// Samples in flight of a stage of which `need` are asked; beyond `most` all are the same.
int64_t InFlight(const StageConfig& config, int64_t need, int64_t most) {
  int64_t in_flight = config.k * config.micro_batch;
  while (in_flight < need) in_flight += config.micro_batch;
  in_flight = std::min(in_flight, kMiniBatch);
  return in_flight > most ? kMiniBatch + 1 : in_flight;
}

TEST(NeedRowsTest, AgreesWithPlainVectors) {
  Rng random(41);
  int ordered = 0;
  int equal = 0;
  for (int round = 0; round < 100; ++round) {
    const std::vector<StageConfig> configs = RandomConfigs(random);
    NeedRows rows(configs, kMiniBatch);
    for (int64_t most : {kMiniBatch, Uniform(random, 1, kMiniBatch)}) {
      rows.Reset(most);
      std::vector<std::pair<NeedRows::Row, std::vector<int64_t>>> known(1);
      known[0].first = NeedRows::kNothing;
      for (const StageConfig& x : configs) known[0].second.push_back(InFlight(x, 0, most));
      for (int step = 0; step < 60; ++step) {
        std::vector<int64_t> expected;
        NeedRows::Row row = 0;
        if (Uniform(random, 0, 1) == 0) {
          const auto c =
              static_cast<size_t>(Uniform(random, 0, static_cast<int64_t>(configs.size()) - 1));
          const int64_t b = configs[c].micro_batch;
          const int64_t in_flight = b * Uniform(random, 1, kMiniBatch / b);
          row = rows.Of(c, in_flight);
          for (const StageConfig& x : configs) {
            const int64_t need = ComputeInFlight(x.k, x.micro_batch, configs[c].k, b, in_flight);
            expected.push_back(InFlight(x, need, most));
          }
        } else {
          const auto last = static_cast<int64_t>(known.size()) - 1;
          const auto& a = known[Uniform(random, 0, last)];
          const auto& b = known[Uniform(random, 0, last)];
          row = rows.Larger(a.first, b.first);
          for (size_t x = 0; x < configs.size(); ++x) {
            expected.push_back(std::max(a.second[x], b.second[x]));
          }
        }
        for (size_t x = 0; x < configs.size(); ++x) ASSERT_EQ(rows.At(row, x), expected[x]);
        for (const auto& [other, needs] : known) {
          bool at_most = true;
          for (size_t x = 0; x < configs.size(); ++x) at_most &= expected[x] <= needs[x];
          ASSERT_EQ(rows.AtMost(row, other), at_most);
          ASSERT_EQ(row == other, expected == needs);
          ordered += at_most ? 1 : 0;
          equal += row == other ? 1 : 0;
        }
        known.emplace_back(row, std::move(expected));
      }
    }
  }
  EXPECT_GT(ordered, 1000);
  EXPECT_GT(equal, 100);
}

TEST(NeedRowsTest, OfOneConfigARowIsTheNeed) {
  NeedRows rows({{4, 1}}, kMiniBatch);
  rows.Reset(8);
  EXPECT_EQ(rows.Of(0, 8), 12);
  EXPECT_EQ(rows.At(12, 0), 12);
  EXPECT_EQ(rows.Larger(12, 8), 12);
  EXPECT_TRUE(rows.AtMost(8, 12));
  EXPECT_FALSE(rows.AtMost(12, 8));
}

}  // namespace
}  // namespace stagewright
