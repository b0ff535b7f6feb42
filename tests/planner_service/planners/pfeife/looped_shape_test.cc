#include "planner_service/planners/pfeife/looped_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace stagewright::pfeife {
namespace {

using ::testing::ElementsAre;

// Appendix B.2 with four devices: the warm-up that each parameter list stands for.
TEST(LoopedShapeTest, WarmUpsOfPublishedSchedules) {
  const auto warm_up = [](int32_t batches, int32_t loops, int32_t loop_batch,
                          std::vector<int32_t> prefetch) {
    return WarmUp({4, loops, batches, loop_batch, {}}, prefetch);
  };
  EXPECT_THAT(warm_up(8, 1, 8, {4, 5, 6, 7}), ElementsAre(8, 8, 8, 8));   // GPipe.
  EXPECT_THAT(warm_up(6, 1, 6, {0, 0, 0, 0}), ElementsAre(4, 3, 2, 1));   // 1F1B.
  EXPECT_THAT(warm_up(8, 2, 4, {0, 1, 2, 3}), ElementsAre(8, 8, 8, 8));   // TeraPipe.
  EXPECT_THAT(warm_up(8, 2, 4, {3, 2, 1, 0}), ElementsAre(11, 9, 7, 5));  // Looped 1F1B.
  EXPECT_THAT(warm_up(8, 2, 4, {2, 2, 1, 0}), ElementsAre(10, 9, 7, 5));  // Figure 3.
}

TEST(LoopedShapeTest, DevicePassesOfFigure3) {
  const LoopedShape shape = MakeShape(4, 2, 8, 4, 0);
  const auto devices = DevicePasses(shape);
  ASSERT_EQ(devices.size(), 4u);
  // The last device: four micro-batches through slice 3, one through slice 7, then in turn.
  const std::vector<SlicePass> begin(devices[3].begin(), devices[3].begin() + 8);
  EXPECT_THAT(begin,
              ElementsAre(SlicePass{3, 0, false}, SlicePass{3, 1, false}, SlicePass{3, 2, false},
                          SlicePass{3, 3, false}, SlicePass{7, 0, false}, SlicePass{7, 0, true},
                          SlicePass{7, 1, false}, SlicePass{7, 1, true}));
}

TEST(LoopedShapeTest, ShapesHaveDistinctOrders) {
  for (int32_t loops : {1, 2, 3}) {
    const auto shapes = PossibleShapes(4, loops, 8);
    for (size_t i = 0; i < shapes.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        EXPECT_NE(DevicePasses(shapes[i]), DevicePasses(shapes[j])) << i << " " << j;
      }
    }
    EXPECT_GE(shapes.size(), loops == 1 ? 3u : 7u);
  }
}

// Every pass once, and in an order that respects devices and data.
TEST(LoopedShapeTest, TopologicalPassesRespectDevicesAndData) {
  for (int32_t devices : {1, 2, 3, 5}) {
    for (int32_t loops : {1, 2, 3}) {
      for (int32_t batches : {1, 4, 6, 7}) {
        for (const LoopedShape& shape : PossibleShapes(devices, loops, batches)) {
          SCOPED_TRACE(ToString(shape));
          const auto order = TopologicalPasses(shape);
          ASSERT_TRUE(order);
          std::map<std::tuple<int32_t, int32_t, bool>, size_t> place;
          for (size_t i = 0; i < order->size(); ++i) {
            const SlicePass& pass = (*order)[i];
            EXPECT_TRUE(place.try_emplace({pass.slice, pass.micro_batch, pass.backward}, i).second);
          }
          ASSERT_EQ(place.size(), size_t{2} * shape.slices() * batches);
          for (const auto& passes : DevicePasses(shape)) {
            for (size_t i = 1; i < passes.size(); ++i) {
              const auto at = [&](const SlicePass& p) {
                return place.at({p.slice, p.micro_batch, p.backward});
              };
              EXPECT_LT(at(passes[i - 1]), at(passes[i]));
            }
          }
          for (int32_t m = 0; m < batches; ++m) {
            for (int32_t s = 1; s < shape.slices(); ++s) {
              EXPECT_LT(place.at({s - 1, m, false}), place.at({s, m, false}));
              EXPECT_LT(place.at({s, m, true}), place.at({s - 1, m, true}));
            }
          }
        }
      }
    }
  }
}

TEST(LoopedShapeTest, DeadlocksAreFound) {
  // The only device would run slice 1 backward before forward.
  EXPECT_FALSE(TopologicalPasses({1, 2, 2, 2, {1}}));
  EXPECT_FALSE(TopologicalPasses({2, 2, 2, 2, {4, 2}}));
  EXPECT_TRUE(TopologicalPasses({2, 2, 2, 2, {4, 3}}));
}

}  // namespace
}  // namespace stagewright::pfeife
