// What the paper states of PipeDream's plans (table 1), on the profiles that are published. The
// paper's mini-batches have 32 images a worker; the profiles were taken with 64 (VGG16) and 128
// (Inception-v3), so that compute and activations are scaled. Of S2VT there is no profile.
#include <gtest/gtest.h>

#include "tests/planner_service/planners/pipedream/profiles.h"

namespace stagewright::pipedream {
namespace {

constexpr double kFast = 25e9 / 8;  // Cluster A's Ethernet.
constexpr double kSlow = 10e9 / 8;  // Cluster B's.

using Replicas = std::vector<int32_t>;

Replicas PlanOf(const LayerProfile& profile, double bandwidth) {
  return Solve(profile, RulesOfThePaper(), {{8, bandwidth}}).Replicas();
}

// The last of eight machines has the last layers alone.
void ExpectSevenAndOne(const std::string& path) {
  const LayerProfile profile = Scaled(LoadProfile(path), 32.0 / 64);
  EXPECT_EQ(PlanOf(profile, kFast), (Replicas{7, 1}));
  EXPECT_EQ(PlanOf(profile, kSlow), (Replicas{7, 1}));
}

TEST(PipeDreamPaperTest, Vgg16KeepsItsLastLayersOnOneOfEightMachines) {
  ExpectSevenAndOne("synthetic/vgg16.graph.txt");
}

TEST(PipeDreamPaperTest, PublishedVgg16KeepsItsLastLayersOnOneOfEightMachines) {
  STAGEWRIGHT_SHARED_GRAPH_OR_SKIP(path, "pipedream/vgg16.graph.txt");
  ExpectSevenAndOne(path);
}

TEST(PipeDreamPaperTest, PublishedInceptionIsDataParallelOnlyOnTheFastCluster) {
  STAGEWRIGHT_SHARED_GRAPH_OR_SKIP(path, "pipedream/inception_v3.graph.txt");
  const LayerProfile profile = Scaled(LoadProfile(path), 32.0 / 128);
  EXPECT_EQ(PlanOf(profile, kFast), (Replicas{8}));
  EXPECT_EQ(PlanOf(profile, kSlow), (Replicas{7, 1}));
}

// A chain of S2VT's shape, half of the work in the first layer and most weights behind it, is split
// 2-1-1 over four machines.
TEST(PipeDreamPaperTest, AHeavyInputStageIsReplicated) {
  LayerProfile profile;
  profile.dag = *Dag::Create(3, {{0, 1}, {1, 2}});
  profile.seconds = {2, 1, 1};
  profile.output = {1e6, 1e6, 0};
  profile.parameters = {1e7, 4e9, 4e9};
  EXPECT_EQ(Solve(profile, RulesOfThePaper(), {{4, kFast}}).Replicas(), (Replicas{2, 1, 1}));
  EXPECT_EQ(Noam(4, 2), 2);
}

}  // namespace
}  // namespace stagewright::pipedream
