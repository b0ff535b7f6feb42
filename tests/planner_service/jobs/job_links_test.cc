#include "planner_service/jobs/job_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner_service/jobs/job_cluster.h"

namespace stagewright {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

RegisteredDevice DeviceAt(const std::string& host, const std::string& worker) {
  RegisteredDevice registered;
  registered.worker = worker;
  registered.device.set_name("cpu0");
  registered.device.set_memory_bytes(1000);
  registered.kind.set_name("cpu");
  registered.kind.set_flops_per_second(1e9);
  registered.kind.set_memory_bytes_per_second(1e9);
  registered.host_address = host;
  registered.threads = 1;
  return registered;
}

const std::vector<RegisteredDevice> kThreeOnOne = {DeviceAt("a", "w0"), DeviceAt("a", "w1"),
                                                   DeviceAt("a", "w2")};

void Measure(LinkTable& table, const std::string& a, const std::string& b, Nanos latency,
             double rate) {
  const absl::Time noon = absl::FromUnixSeconds(1'700'000'000);
  table.links[{a, b}] = table.links[{b, a}] = {latency, rate, noon, ""};
}

LinkTable AllOfThree(Nanos latency, double rate) {
  LinkTable table;
  Measure(table, "w0", "w1", latency, rate);
  Measure(table, "w0", "w2", latency, rate);
  Measure(table, "w1", "w2", latency, rate);
  return table;
}

const Route& RouteOf(const Cluster& cluster, int32_t a, int32_t b) {
  return cluster.route(DeviceId(a), DeviceId(b));
}

TEST(JobLinks, MeasuredRatesReplaceTheAssumedOnes) {
  const Cluster cluster = JobCluster(kThreeOnOne, AllOfThree(20000, 3e9)).value();
  EXPECT_EQ(RouteOf(cluster, 0, 1).latency, 20000);
  EXPECT_EQ(RouteOf(cluster, 2, 0).bytes_per_second, 3e9);
  EXPECT_THAT(cluster.name(), HasSubstr("3 registered devices, links measured "));
  EXPECT_THAT(cluster.name(), Not(HasSubstr("assumed")));
}

TEST(JobLinks, NoiseDoesNotMakeAlikeDevicesUnlike) {
  LinkTable table = AllOfThree(20000, 3e9);
  Measure(table, "w0", "w1", 24000, 2.5e9);
  const Cluster cluster = JobCluster(kThreeOnOne, table).value();
  EXPECT_EQ(RouteOf(cluster, 0, 1).latency, 20000);
  EXPECT_EQ(RouteOf(cluster, 0, 1).bytes_per_second, 3e9);
}

TEST(JobLinks, APairUnlikeTheOthersHasALinkOfItsOwn) {
  LinkTable table = AllOfThree(20000, 3e9);
  Measure(table, "w0", "w1", 20000, 0.3e9);
  const Cluster cluster = JobCluster(kThreeOnOne, table).value();
  EXPECT_EQ(RouteOf(cluster, 0, 1).bytes_per_second, 0.3e9);
  EXPECT_EQ(RouteOf(cluster, 1, 0).bytes_per_second, 0.3e9);
  EXPECT_EQ(RouteOf(cluster, 0, 2).bytes_per_second, 3e9);
}

TEST(JobLinks, APairThatWasNotMeasuredIsNamedAndCountsAsTheOthersOfItsMachine) {
  LinkTable table = AllOfThree(20000, 3e9);
  table.links.erase({"w1", "w2"});
  table.links[{"w2", "w1"}] = {};
  table.links[{"w2", "w1"}].failure = "no answer";
  const Cluster cluster = JobCluster(kThreeOnOne, table).value();
  EXPECT_EQ(RouteOf(cluster, 1, 2).bytes_per_second, 3e9);
  EXPECT_THAT(cluster.name(), HasSubstr(", but assumed: w1 - w2, w1 - w2 (no answer)"));
}

TEST(JobLinks, NothingMeasuredIsSaid) {
  EXPECT_EQ(LinkSummary({kThreeOnOne[0], kThreeOnOne[1]}, {}), "links assumed: w0 - w1");
  EXPECT_EQ(LinkSummary({kThreeOnOne[0]}, {}), "no links");
}

TEST(JobLinks, DevicesOfOneMachineShareWhatAllOfThemReachAtOnce) {
  LinkTable table = AllOfThree(20000, 3e9);
  table.crowds[{"a", 3, 1}] = {10, 10, 90000, 4e9};
  const Cluster cluster = JobCluster(kThreeOnOne, table).value();
  const Route& one = RouteOf(cluster, 0, 1);
  const Route& other = RouteOf(cluster, 2, 1);
  EXPECT_EQ(one.latency, 90000) << "a message waits for the threads of the others";
  EXPECT_EQ(one.bytes_per_second, 3e9);
  ASSERT_EQ(one.links.size(), 2u);
  EXPECT_NE(one.links[0], other.links[0]);
  EXPECT_EQ(one.links[1], other.links[1]);
  EXPECT_EQ(cluster.links()[one.links[1]].bytes_per_second, 4e9);
  table.crowds[{"a", 3, 1}].bytes_per_second = 9e9;  // As much as the ports: nothing to share.
  EXPECT_EQ(RouteOf(JobCluster(kThreeOnOne, table).value(), 0, 1).links.size(), 1u);
}

TEST(JobLinks, MessagesBetweenMachinesShareTheirUplinks) {
  LinkTable table;
  Measure(table, "w0", "w1", 70000, 0.9e9);
  Measure(table, "w0", "w2", 70000, 2e9);
  const Cluster cluster =
      JobCluster({DeviceAt("a", "w0"), DeviceAt("b", "w1"), DeviceAt("c", "w2")}, table).value();
  const Route& slow = RouteOf(cluster, 0, 1);
  const Route& fast = RouteOf(cluster, 0, 2);
  EXPECT_EQ(slow.latency, 70000);
  EXPECT_EQ(slow.bytes_per_second, 0.9e9);
  EXPECT_EQ(fast.bytes_per_second, 2e9);
  EXPECT_EQ(slow.links[1], fast.links[1]);
  EXPECT_THAT(cluster.links()[slow.links[1]].name, EndsWith("a/uplink"));
  EXPECT_EQ(cluster.links()[slow.links[1]].bytes_per_second, 2e9);
  EXPECT_EQ(RouteOf(cluster, 1, 2).bytes_per_second, 1.25e9) << "assumed";
}

}  // namespace
}  // namespace stagewright
