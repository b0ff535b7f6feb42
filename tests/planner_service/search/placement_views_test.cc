#include "planner_service/search/placement_views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/topology/presets.h"
#include "tests/support/clusters.h"
#include "tests/support/random.h"
#include "tests/support/random_graphs.h"
#include "tests/support/search_case.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using testing::FlatCluster;
using testing::SearchCase;

std::vector<PlacementView> ViewsOf(const Cluster& cluster) {
  testing::Rng random(5);
  const SearchCase c(testing::RandomNetwork(random, 12), cluster, 64);
  return PlacementViews(c.problem);
}

const PlacementView* Find(const std::vector<PlacementView>& views, const std::string& name) {
  const auto it = std::find_if(views.begin(), views.end(),
                               [&](const PlacementView& view) { return view.name == name; });
  return it == views.end() ? nullptr : &*it;
}

ClusterData Slower(ClusterData data, const std::vector<int32_t>& devices) {
  data.kinds.push_back(data.kinds[0]);
  data.kinds.back().name = "slow";
  data.kinds.back().flops_per_second /= 4;
  data.kinds.back().memory_bytes_per_second /= 4;
  for (int32_t d : devices) data.devices[d].kind = 1;
  return data;
}

TEST(PlacementViewsTest, EqualDevicesNeedNone) {
  EXPECT_TRUE(ViewsOf(FlatCluster(4)).empty());
  EXPECT_TRUE(ViewsOf(FlatCluster(1)).empty());
}

TEST(PlacementViewsTest, RegularNodesAreLookedAtAsIfThereWereNone) {
  const auto views = ViewsOf(*ClusterPreset("summit:2"));
  ASSERT_EQ(views.size(), 1u);
  EXPECT_EQ(views[0].name, "equal");
  std::set<double> rates;
  for (const Link& link : views[0].cluster.links()) rates.insert(link.bytes_per_second);
  EXPECT_EQ(rates.size(), 1u);
  EXPECT_TRUE(ViewsOf(*ClusterPreset("summit:32")).empty());
}

TEST(PlacementViewsTest, FastDevicesAreOneClass) {
  const auto views = ViewsOf(*Cluster::Create(Slower(FlatCluster(4).data(), {1, 2})));
  ASSERT_FALSE(views.empty());
  EXPECT_THAT(views[0].devices, ElementsAre(DeviceId(0)));
  const PlacementView* fast = Find(views, "speed class 1");
  ASSERT_NE(fast, nullptr);
  EXPECT_THAT(fast->devices, ElementsAre(DeviceId(0), DeviceId(3)));
  EXPECT_EQ(fast->cluster.kinds().size(), 1u);
  const PlacementView* grouped = Find(views, "grouped");
  ASSERT_NE(grouped, nullptr);
  EXPECT_THAT(grouped->devices, ElementsAre(DeviceId(0), DeviceId(3), DeviceId(1), DeviceId(2)));
  const PlacementView* equal = Find(views, "equal");
  ASSERT_NE(equal, nullptr);
  EXPECT_TRUE(equal->cluster.Homogeneous());
  EXPECT_EQ(equal->cluster.kinds()[0].name, "test");
}

TEST(PlacementViewsTest, MemoryClassesStartWithTheLargest) {
  ClusterData data = FlatCluster(3, kGiB).data();
  data.devices[1].memory = 4 * kGiB;
  data.devices[2].memory = 2 * kGiB;
  const auto views = ViewsOf(*Cluster::Create(data));
  EXPECT_THAT(views[0].devices, ElementsAre(DeviceId(1)));
  const PlacementView* two = Find(views, "memory class 2");
  ASSERT_NE(two, nullptr);
  EXPECT_THAT(two->devices, ElementsAre(DeviceId(1), DeviceId(2)));
}

TEST(PlacementViewsTest, FastLinksMakeGroupsThatAreNodes) {
  // Even devices are near each other, and so are odd ones.
  ClusterData data;
  data.name = "pairs";
  data.kinds = FlatCluster(1).data().kinds;
  for (int32_t a = 0; a < 4; ++a) {
    data.devices.push_back({"d" + std::to_string(a), 0, 0, kGiB});
    for (int32_t b = 0; b < 4; ++b) {
      data.routes.emplace_back();
      if (a == b) continue;
      data.routes.back() = {static_cast<int32_t>(data.links.size())};
      data.links.push_back(
          {"l" + std::to_string(a) + std::to_string(b), 1000, a % 2 == b % 2 ? 1e10 : 1e8});
    }
  }
  const auto views = ViewsOf(*Cluster::Create(data));
  const PlacementView* grouped = Find(views, "grouped");
  ASSERT_NE(grouped, nullptr);
  EXPECT_THAT(grouped->devices, ElementsAre(DeviceId(0), DeviceId(2), DeviceId(1), DeviceId(3)));
  EXPECT_EQ(grouped->cluster.devices()[0].node, grouped->cluster.devices()[1].node);
  EXPECT_NE(grouped->cluster.devices()[0].node, grouped->cluster.devices()[2].node);
  const PlacementView* first = Find(views, "fastest group");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->devices.size(), 2u);
}

TEST(PlacementViewsTest, DevicesAndRoutesAreThoseOfTheCluster) {
  testing::Rng random(11);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const Cluster cluster = testing::RandomCluster(random, 10);
    const auto views = ViewsOf(cluster);
    std::set<std::string> names;
    for (const PlacementView& view : views) {
      SCOPED_TRACE(view.name);
      EXPECT_TRUE(names.insert(view.name).second);
      ASSERT_EQ(view.devices.size(), view.cluster.devices().size());
      EXPECT_EQ(std::set<DeviceId>(view.devices.begin(), view.devices.end()).size(),
                view.devices.size());
      const bool equal = view.name.find("equal") != std::string::npos;
      for (int32_t a = 0; a < view.cluster.size(); ++a) {
        const Device& own = cluster.device(view.devices[a]);
        EXPECT_EQ(view.cluster.devices()[a].memory, own.memory);
        EXPECT_EQ(view.cluster.devices()[a].name, own.name);
        for (int32_t b = 0; b < view.cluster.size(); ++b) {
          EXPECT_EQ(view.cluster.route(DeviceId(a), DeviceId(b)).links,
                    cluster.route(view.devices[a], view.devices[b]).links);
        }
        if (equal) continue;
        EXPECT_EQ(view.cluster.kind_of(DeviceId(a)).name, cluster.kind_of(view.devices[a]).name);
      }
    }
  }
}

}  // namespace
}  // namespace stagewright
