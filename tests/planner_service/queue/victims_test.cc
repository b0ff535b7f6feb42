#include "planner_service/queue/victims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/planner_service/queue/queue_cases.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::Holds;
using ::testing::IsEmpty;

TEST(FewestVictimsTest, NoneIfAllDoNotSuffice) {
  EXPECT_THAT(FewestVictims({}, 1), IsEmpty());
  EXPECT_THAT(FewestVictims({Holds(1, 2), Holds(2, 1)}, 4), IsEmpty());
}

TEST(FewestVictimsTest, AsFewAsSuffice) {
  EXPECT_THAT(FewestVictims({Holds(1, 4), Holds(2, 1), Holds(3, 2), Holds(4, 1)}, 4),
              ElementsAre(1));
  EXPECT_THAT(FewestVictims({Holds(1, 4), Holds(2, 1), Holds(3, 2), Holds(4, 1)}, 6),
              ElementsAre(3, 1));
}

TEST(FewestVictimsTest, LowPriorityFirstThenTheYoungest) {
  EXPECT_THAT(FewestVictims({Holds(1, 1), Holds(2, 1), Holds(3, 1, 5)}, 1), ElementsAre(2));
  EXPECT_THAT(FewestVictims({Holds(1, 1, 1), Holds(2, 1, 2)}, 1), ElementsAre(1));
}

TEST(FewestVictimsTest, CountsWhatOthersMayHave) {
  HoldingJob closed = Holds(2, 4);
  closed.returns = 1;
  EXPECT_THAT(FewestVictims({Holds(1, 2), closed}, 2), ElementsAre(1));
}

}  // namespace
}  // namespace stagewright
