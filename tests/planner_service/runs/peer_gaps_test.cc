#include "planner_service/runs/peer_gaps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Worker z has the first device, then a, b and c.
const std::map<std::string, std::vector<int32_t>> kWorkers = {
    {"z", {0}}, {"a", {1, 2}}, {"b", {3}}, {"c", {4}}};

TEST(PeerGaps, TheLaterOfTwoIsTheOutsiderWhoeverTells) {
  for (const auto& [one, other] : {std::pair("z", "a"), std::pair("a", "z")}) {
    PeerGaps gaps;
    EXPECT_THAT(gaps.Outsiders(kWorkers, {}), IsEmpty());
    gaps.NoteGivenUp(one, {other});
    EXPECT_THAT(gaps.Outsiders(kWorkers, {}), ElementsAre("a"));
    gaps.NoteGivenUp(other, {one});
    EXPECT_THAT(gaps.Outsiders(kWorkers, {}), ElementsAre("a"));
  }
}

TEST(PeerGaps, TheOneThatMostDidNotReachIsTheOutsider) {
  PeerGaps gaps;
  gaps.NoteGivenUp("b", {"z"});
  gaps.NoteGivenUp("z", {"a", "b", "c"});
  EXPECT_THAT(gaps.Outsiders(kWorkers, {}), ElementsAre("z"));
}

TEST(PeerGaps, HalvesOfANetworkAreToldApart) {
  PeerGaps gaps;
  gaps.NoteGivenUp("z", {"b", "c"});
  gaps.NoteGivenUp("b", {"z", "a"});
  gaps.NoteGivenUp("a", {"b", "c"});
  EXPECT_THAT(gaps.Outsiders(kWorkers, {}), ElementsAre("c", "b"));
}

TEST(PeerGaps, WhereNobodyReachesAnybodyTheFirstIsLeft) {
  PeerGaps gaps;
  gaps.NoteGivenUp("z", {"a", "b", "c"});
  gaps.NoteGivenUp("a", {"z", "b", "c"});
  gaps.NoteGivenUp("b", {"z", "a", "c"});
  EXPECT_THAT(gaps.Outsiders(kWorkers, {}), ElementsAre("c", "b", "a"));
}

TEST(PeerGaps, TheEndOfAPeerIsNone) {
  PeerGaps gaps;
  gaps.NoteGivenUp("b", {});
  gaps.NoteGivenUp("a", {"b", "c"});
  EXPECT_THAT(gaps.Outsiders(kWorkers, {"c"}), IsEmpty());
}

TEST(PeerGaps, AWorkerAlwaysReachesItself) {
  PeerGaps gaps;
  gaps.NoteGivenUp("a", {"a"});
  EXPECT_THAT(gaps.Outsiders(kWorkers, {}), IsEmpty());
}

}  // namespace
}  // namespace stagewright
