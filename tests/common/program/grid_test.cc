#include "common/program/grid.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/lowering/lower.h"
#include "tests/support/layer_graphs.h"
#include "tests/support/schedule_cases.h"
#include "tests/support/strategies.h"

namespace stagewright {
namespace {

using testing::ChainGraph;
using testing::MakeStages;

TEST(Grid, HasARowPerDeviceInColumns) {
  const Graph graph = ChainGraph(2);
  const testing::FixedCosts costs(0, 0, graph);
  const Program program =
      *Lower(graph, MakeStages(graph, 12, {{{0}, {0}, 4}, {{1, 2}, {1}, 4}}), costs, {});
  EXPECT_EQ(Grid(program), R"(device 0 | F0[0,4) F0[4,8) B0[0,4) F0[8,12) B0[4,8)  B0[8,12) OS0
device 1 | F1[0,4) B1[0,4) F1[4,8) B1[4,8)  F1[8,12) B1[8,12) OS1
)");
  const auto& body = program.devices[1].body;
  const auto receive = std::find_if(body.begin(), body.end(), [](const ProgramAction& action) {
    return ToString(action.action) == "RA1[8,12)@0";
  });
  EXPECT_EQ(Grid(program, 1, static_cast<int32_t>(receive - body.begin())),
            R"(device 0 | F0[0,4) F0[4,8) B0[0,4)       F0[8,12) B0[4,8) B0[8,12) OS0
device 1 | F1[0,4) B1[0,4) >RA1[8,12)@0< F1[4,8)  B1[4,8) F1[8,12) B1[8,12) ...
)");
}

}  // namespace
}  // namespace stagewright
