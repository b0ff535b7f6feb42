#include "planner_service/links/link_prober.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "planner_service/store/sqlite_store.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class LinkProberTest : public ::testing::Test {
 protected:
  LinkProberTest() : store_(OpenSqliteStore(":memory:").value().store) {}

  // By default on a machine of its own.
  int64_t Connect(const std::string& worker, const std::string& host = "") {
    v1::Register message;
    message.set_worker(worker);
    message.set_host_address(host.empty() ? worker : host);
    message.set_host_cores(1);
    message.set_threads_per_device(1);
    message.set_probes_links(true);
    message.set_proves_key(true);
    v1::DeviceKind* kind = message.add_kinds();
    kind->set_name("cpu");
    kind->set_flops_per_second(1e9);
    kind->set_memory_bytes_per_second(1e9);
    v1::Device* device = message.add_devices();
    device->set_name("cpu0");
    device->set_memory_bytes(1 << 20);
    const auto sink = [this, worker](const v1::ConnectResponse& sent) {
      sent_[worker].push_back(sent);
      return true;
    };
    const int64_t session = registry_.Register(message, sink, now_).value();
    prober_.OnRegistered(message, now_);
    return session;
  }

  // The probe that the worker was asked for last; 0 if none.
  int64_t Asked(const std::string& worker) {
    int64_t probe = 0;
    for (const v1::ConnectResponse& message : sent_[worker]) {
      if (message.has_probe_links()) probe = message.probe_links().probe();
    }
    return probe;
  }

  void Ready(const std::string& worker, int device) {
    v1::ProbeReady message;
    message.set_probe(Asked(worker));
    message.add_devices()->set_device(device);
    prober_.OnReady(worker, message, now_);
  }

  // Answers with a line of this latency, at 1 GB/s.
  void Probed(const std::string& worker, int device, int64_t latency) {
    v1::LinksProbed message;
    message.set_probe(Asked(worker));
    v1::DeviceProbe* own = message.add_devices();
    own->set_device(device);
    for (const int64_t size : {1000, 100000}) {
      own->add_samples()->set_size_bytes(size);
      own->mutable_samples(own->samples_size() - 1)->set_time_ns(latency + size);
    }
    prober_.OnProbed(worker, message, now_);
  }

  void Measure(const std::string& a, const std::string& b, int64_t there, int64_t back) {
    Ready(a, 0);
    Ready(b, 1);
    Probed(a, 0, there);
    Probed(b, 1, back);
  }

  LinkFigure Link(const std::string& a, const std::string& b) {
    const LinkTable table = registry_.Links();
    const auto it = table.links.find({a, b});
    return it == table.links.end() ? LinkFigure{} : it->second;
  }

  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  const std::unique_ptr<Store> store_;
  WorkerRegistry registry_;
  LinkProber prober_{store_.get(), &registry_};
  std::map<std::string, std::vector<v1::ConnectResponse>> sent_;
};

TEST_F(LinkProberTest, ANewWorkerIsMeasuredWithThoseThatAreThere) {
  Connect("a");
  EXPECT_THAT(sent_["a"], IsEmpty());
  Connect("b");
  EXPECT_EQ(prober_.figures().pending, 1);
  Measure("a", "b", 20000, 30000);
  EXPECT_EQ(prober_.figures().pending, 0);
  EXPECT_NEAR(static_cast<double>(Link("a", "b").latency), 20000, 5);
  EXPECT_NEAR(static_cast<double>(Link("b", "a").latency), 30000, 5);
  EXPECT_NEAR(Link("a", "b").bytes_per_second, 1e9, 1e6);
  EXPECT_EQ(Link("a", "b").measured, now_);
  EXPECT_TRUE(sent_["a"].back().has_end_probe());
}

TEST_F(LinkProberTest, EachProbeHasAKeyOfItsOwn) {
  Connect("a");
  Connect("b");
  const std::string first = sent_["a"].back().probe_links().transport_key();
  EXPECT_EQ(first.size(), 32);
  EXPECT_EQ(sent_["b"].back().probe_links().transport_key(), first);
  Measure("a", "b", 20000, 30000);
  prober_.MeasureAgain(now_);
  const std::string second = sent_["a"].back().probe_links().transport_key();
  EXPECT_EQ(second.size(), 32);
  EXPECT_NE(second, first);
}

TEST_F(LinkProberTest, FiguresOutliveThePlanner) {
  Connect("a");
  Connect("b");
  Measure("a", "b", 20000, 30000);
  WorkerRegistry other;
  LinkProber again(store_.get(), &other);
  while (absl::IsNotFound(store_->Read(LinkKeeper::kKey).status()))
    absl::SleepFor(absl::Milliseconds(1));  // They are written in the background.
  ASSERT_TRUE(again.Recover().ok());
  EXPECT_NEAR(static_cast<double>(other.Links().links.at({"a", "b"}).latency), 20000, 5);
}

TEST_F(LinkProberTest, WhoDoesNotAnswerIsNamedAndTheOtherPairsStand) {
  Connect("a");
  Connect("b");
  Connect("c");
  Ready("a", 0);  // b says nothing.
  now_ += LinkProber::kPatience;
  prober_.Tick(now_);
  EXPECT_THAT(Link("a", "b").failure, HasSubstr("no answer in 10s from worker b"));
  Measure("a", "c", 1000, 1000);
  Measure("b", "c", 1000, 1000);
  EXPECT_TRUE(Link("a", "c").ok());
  EXPECT_TRUE(Link("c", "b").ok());
  EXPECT_EQ(prober_.figures().pending, 0);
}

TEST_F(LinkProberTest, FiguresThatCannotBeAreAFailureOfThatLinkAlone) {
  Connect("a");
  Connect("b");
  Measure("a", "b", -2000, 1000);
  EXPECT_THAT(Link("a", "b").failure, HasSubstr("-1000 ns for a message of 1000 bytes"));
  EXPECT_TRUE(Link("b", "a").ok());
}

TEST_F(LinkProberTest, FiguresThatCannotBeAreMeasuredAgainButNotForEver) {
  Connect("a");
  Connect("b");
  Measure("a", "b", -2000, 1000);
  EXPECT_EQ(prober_.figures().pending, 1) << "other programs may have disturbed it";
  now_ += absl::Seconds(1);
  prober_.Tick(now_);
  Measure("a", "b", 20000, 1000);
  EXPECT_EQ(prober_.figures().pending, 0);
  EXPECT_NEAR(static_cast<double>(Link("a", "b").latency), 20000, 5);

  Connect("c");
  Measure("a", "c", 1000, 1000);
  int tries = 0;
  for (; prober_.figures().pending > 0 && tries < 100; ++tries) {
    Measure("b", "c", -2000, 1000);
    now_ += absl::Seconds(1);
    prober_.Tick(now_);
  }
  EXPECT_EQ(tries, 1 + 5);
  EXPECT_FALSE(Link("b", "c").ok());
}

TEST_F(LinkProberTest, AFailureDoesNotReplaceWhatWasMeasured) {
  Connect("a");
  Connect("b");
  Measure("a", "b", 20000, 20000);
  prober_.MeasureAgain(now_);
  EXPECT_EQ(prober_.figures().pending, 1);
  Measure("a", "b", -2000, 40000);
  EXPECT_EQ(prober_.figures().pending, 0);
  EXPECT_NEAR(static_cast<double>(Link("a", "b").latency), 20000, 5);
  EXPECT_NEAR(static_cast<double>(Link("b", "a").latency), 40000, 5);
}

TEST_F(LinkProberTest, AWorkerThatIsLostEndsItsProbeAndTheOthersGoOn) {
  Connect("a");
  const int64_t session = Connect("b");
  Connect("c");
  Ready("a", 0);
  ASSERT_TRUE(registry_.Unregister("b", session));
  prober_.OnLost("b", now_);
  EXPECT_TRUE(sent_["a"].back().has_end_probe());
  EXPECT_THAT(registry_.Links().links, IsEmpty());
  now_ += absl::Seconds(3);
  prober_.Tick(now_);
  Measure("a", "c", 1000, 1000);
  EXPECT_TRUE(Link("a", "c").ok());
}

TEST_F(LinkProberTest, AProbeThatAJobEndedIsTriedAgainOnceTheJobIsOver) {
  Connect("a");
  Connect("b");
  const int64_t first = Asked("a");
  ASSERT_TRUE(registry_.Allocate("jobs/1", {"a/cpu0"}).ok());
  v1::LinksProbed message;
  message.set_probe(first);
  message.set_error("the worker got a job");
  message.set_interrupted(true);
  prober_.OnProbed("a", message, now_);
  EXPECT_THAT(registry_.Links().links, IsEmpty());
  now_ += absl::Seconds(3);
  prober_.Tick(now_);
  EXPECT_EQ(Asked("a"), first);
  EXPECT_EQ(prober_.figures().pending, 1);
  registry_.Release("jobs/1");
  prober_.Tick(now_);
  EXPECT_EQ(Asked("a"), first + 1);
}

// Answers for a device that had this part of a core.
v1::LinksProbed CrowdAnswer(int64_t probe, int device, double core_share) {
  v1::LinksProbed message;
  message.set_probe(probe);
  v1::DeviceProbe* own = message.add_devices();
  own->set_device(device);
  own->set_product_ns(1000);
  own->set_copy_ns(2000);
  own->set_round_ns(7000);
  own->set_sent_bytes(3000);
  own->set_send_ns(1000);
  own->set_core_share(core_share);
  own->set_message_ns(400);
  own->set_large_message_ns(1400);
  own->set_large_message_bytes(5000);
  own->set_reduction_ns(9000);
  return message;
}

TEST_F(LinkProberTest, AProbeEndsWhenItsMachineGetsOtherWork) {
  Connect("a", "h");
  Connect("b", "h");
  Connect("c", "h");
  const int64_t first = Asked("a");
  ASSERT_TRUE(registry_.Allocate("jobs/1", {"c/cpu0"}).ok());
  prober_.Tick(now_);
  EXPECT_TRUE(sent_["a"].back().has_end_probe());
  Ready("a", 0);
  Ready("b", 1);
  Probed("a", 0, 1000);
  EXPECT_THAT(registry_.Links().links, IsEmpty());
  registry_.Release("jobs/1");
  now_ += absl::Seconds(3);
  prober_.Tick(now_);
  EXPECT_EQ(Asked("a"), first + 1);
}

TEST_F(LinkProberTest, AWorkerSpeaksForItsOwnDevices) {
  Connect("a");
  Connect("b");
  Ready("a", 1);
  Ready("b", 1);
  EXPECT_EQ(sent_["a"].back().probe_peers().devices_size(), 1);
  Probed("a", 1, 777);
  Probed("b", 1, 1000);
  EXPECT_FALSE(Link("a", "b").ok()) << "nobody told what a measured";
  EXPECT_NEAR(static_cast<double>(Link("b", "a").latency), 1000, 5);
}

TEST_F(LinkProberTest, ADisturbedFigureReplacesNoQuietOne) {
  Connect("a", "h");
  Connect("b", "h");
  Measure("a", "b", 1000, 1000);
  Ready("a", 0);
  prober_.OnProbed("a", CrowdAnswer(Asked("a"), 0, 0.99), now_);
  prober_.MeasureAgain(now_);
  v1::LinksProbed slow = CrowdAnswer(Asked("a"), 0, 0.2);
  for (int i = 0; i < 4 && registry_.Links().crowds.at({"h", 1, 1}).product == 1000; ++i) {
    Ready("a", 0);
    Ready("b", 1);
    slow.set_probe(Asked("a"));
    slow.mutable_devices(0)->set_product_ns(9000);
    prober_.OnProbed("a", slow, now_);
    prober_.OnProbed("b", CrowdAnswer(Asked("b"), 1, 0.2), now_);
  }
  EXPECT_EQ(registry_.Links().crowds.at({"h", 1, 1}).product, 1000);
}

TEST_F(LinkProberTest, DevicesOfAMachineAreMeasuredAtOnceAndAgainIfOthersHadTheCores) {
  Connect("a", "h");
  Connect("b", "h");
  Measure("a", "b", 1000, 1000);
  Ready("a", 0);  // One device alone.
  prober_.OnProbed("a", CrowdAnswer(Asked("a"), 0, 0.99), now_);
  Ready("a", 0);
  Ready("b", 1);
  const int64_t together = Asked("a");
  prober_.OnProbed("a", CrowdAnswer(together, 0, 0.3), now_);  // Half of the one core is theirs.
  prober_.OnProbed("b", CrowdAnswer(together, 1, 0.3), now_);
  const LinkTable table = registry_.Links();
  EXPECT_EQ(table.crowds.at({"h", 1, 1}).product, 1000);
  EXPECT_EQ(table.crowds.at({"h", 2, 1}).latency, 5000) << "a round less two products";
  EXPECT_EQ(table.crowds.at({"h", 2, 1}).message, 400);
  EXPECT_DOUBLE_EQ(table.crowds.at({"h", 2, 1}).message_bytes_per_second, 5e9);
  EXPECT_EQ(table.crowds.at({"h", 2, 1}).reduction, 9000);
  EXPECT_DOUBLE_EQ(table.crowds.at({"h", 2, 1}).bytes_per_second, 6e9);
  EXPECT_EQ(prober_.figures().pending, 1);
  EXPECT_TRUE(prober_.busy());
  EXPECT_EQ(Asked("a"), together);
  now_ += absl::Seconds(1);
  prober_.Tick(now_);
  EXPECT_EQ(Asked("a"), together + 1);
  Ready("a", 0);
  Ready("b", 1);
  prober_.OnProbed("a", CrowdAnswer(together + 1, 0, 0.5), now_);
  prober_.OnProbed("b", CrowdAnswer(together + 1, 1, 0.5), now_);
  EXPECT_EQ(prober_.figures().pending, 0);
  EXPECT_FALSE(prober_.busy());
}

// Who waits until nothing is pending takes the figures that come with that answer.
TEST_F(LinkProberTest, NothingIsPendingOnlyBesideTheNewestFigures) {
  Connect("a");
  Connect("b");
  Measure("a", "b", 20000, 30000);
  for (int64_t latency = 40000; latency < 60000; latency += 1000) {
    prober_.MeasureAgain(now_);
    std::thread asks([&] {
      while (true) {
        const LinkProber::Figures figures = prober_.figures();
        if (figures.pending > 0) continue;
        EXPECT_NEAR(static_cast<double>(figures.table.links.at({"a", "b"}).latency),
                    static_cast<double>(latency), 5);
        return;
      }
    });
    Measure("a", "b", latency, latency);
    asks.join();
  }
}

TEST_F(LinkProberTest, AMachineThatIsNeverQuietIsNotMeasuredForever) {
  const std::vector<std::string> workers = {"a", "b", "c"};
  for (const std::string& worker : workers) Connect(worker, "h");
  Measure("a", "b", 1000, 1000);
  Measure("a", "c", 1000, 1000);
  Measure("b", "c", 1000, 1000);
  for (const bool again : {false, true}) {  // Who asks for it has the machine tried anew.
    if (again) prober_.MeasureAgain(now_);
    for (int pairs = 0; again && pairs < 3; ++pairs) {
      const int first = pairs == 2 ? 1 : 0, second = pairs == 0 ? 1 : 2;
      Measure(workers[first], workers[second], 1000, 1000);
    }
    int tries = 0;
    for (; prober_.figures().pending > 0 && tries < 100; ++tries) {
      const int64_t probe = std::max({Asked("a"), Asked("b"), Asked("c")});
      for (int i = 0; i < 3; ++i) {
        if (Asked(workers[i]) == probe) Ready(workers[i], i);
      }
      for (int i = 0; i < 3; ++i) {
        if (Asked(workers[i]) == probe)
          prober_.OnProbed(workers[i], CrowdAnswer(probe, i, 0.1), now_);
      }
      now_ += absl::Seconds(1);
      prober_.Tick(now_);
    }
    EXPECT_EQ(tries, 3 + 5) << "however many crowds there are";
    EXPECT_EQ(registry_.Links().crowds.size(), 3u);
  }
}

TEST_F(LinkProberTest, LateAnswersOfAnOlderProbeAreIgnored) {
  Connect("a");
  Connect("b");
  v1::LinksProbed message;
  message.set_probe(Asked("a") + 7);
  message.set_error("something else");
  prober_.OnProbed("a", message, now_);
  prober_.OnProbed("c", message, now_);
  EXPECT_THAT(registry_.Links().links, IsEmpty());
  Measure("a", "b", 1000, 1000);
  EXPECT_TRUE(Link("a", "b").ok());
}

}  // namespace
}  // namespace stagewright
