#include "planner_service/evaluator/bounds/cut_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/topology/presets.h"
#include "common/topology/uniform.h"
#include "tests/support/clusters.h"

namespace stagewright {
namespace {

using ::testing::DoubleEq;
using ::testing::Each;
using ::testing::ElementsAre;

TEST(CutRatesTest, ADeviceHasItsPortAndItsNodesUplink) {
  const Cluster cluster = ClusterPreset("summit:2").value();  // Ports 45 GB/s, an uplink 11.5.
  const CutRates rates = CutByDevice(cluster);
  EXPECT_EQ(rates.in.size(), 8u);
  EXPECT_THAT(rates.in, Each(DoubleEq(56.5)));
  EXPECT_THAT(rates.out, Each(DoubleEq(56.5)));
  EXPECT_THAT(rates.devices, Each(1));
}

TEST(CutRatesTest, ANodeHasItsUplinks) {
  const CutRates rates = CutByNode(ClusterPreset("summit:3").value());
  EXPECT_THAT(rates.in, ElementsAre(DoubleEq(11.5), DoubleEq(11.5), DoubleEq(11.5)));
  EXPECT_THAT(rates.out, ElementsAre(DoubleEq(11.5), DoubleEq(11.5), DoubleEq(11.5)));
  EXPECT_THAT(rates.devices, ElementsAre(4, 4, 4));
}

TEST(CutRatesTest, LinksOfEveryPairAddUp) {
  const CutRates rates = CutByDevice(UniformPreset("uniform:4,bandwidth=2e9").value());
  EXPECT_THAT(rates.in, Each(DoubleEq(6)));
}

TEST(CutRatesTest, ASlowLinkInTheMiddleOfRoutesCounts) {
  // Four devices with fast ports; what goes between the two halves crosses one slow link.
  ClusterData data = testing::FlatCluster(4).data();
  data.links = {{"slow", 0, 1e9}};
  for (int port = 0; port < 8; ++port) data.links.push_back({absl::StrCat("port", port), 0, 50e9});
  for (int a = 0; a < 4; ++a) {
    data.devices[a].node = a / 2;
    for (int b = 0; b < 4; ++b) {
      if (a == b) continue;
      std::vector<int32_t>& route = data.routes[a * 4 + b];
      route = {1 + a, 5 + b};
      if (a / 2 != b / 2) route.insert(route.begin() + 1, 0);
    }
  }
  const Cluster cluster = Cluster::Create(data).value();
  EXPECT_THAT(CutByNode(cluster).in, ElementsAre(DoubleEq(1), DoubleEq(1)));
  EXPECT_THAT(CutByDevice(cluster).out, Each(DoubleEq(50)));
}

TEST(CutRatesTest, TheLargestComeFirst) {
  ClusterData data = testing::FlatCluster(3).data();
  data.devices[2].node = data.devices[1].node = 1;
  EXPECT_THAT(CutByNode(Cluster::Create(data).value()).devices, ElementsAre(2, 1));
}

}  // namespace
}  // namespace stagewright
