// How the graphs of jobs come to workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "common/artifacts/content_hash.h"
#include "tests/planner_service/jobs/small_spec.h"
#include "tests/planner_service/lifecycle/job_harness.h"

namespace stagewright {
namespace {

using testing::JobHarness;
using testing::RecordingStore;
using testing::SmallSpec;
using Message = v1::ConnectResponse;

class JobGraphsTest : public ::testing::Test {
 protected:
  JobGraphsTest() {
    for (const char* name : {"a", "b"}) {
      harness_.Connect(name);
      harness_.Worker(name).silent_on = {Message::kStart};
    }
  }
  // From now on it says that it keeps graphs.
  void Keeps(const std::string& name) {
    harness_.Disconnect(name);
    harness_.Worker(name).keeps_graphs = true;
    harness_.Connect(name);
  }
  std::string Run() {
    v1::JobSpec spec = SmallSpec();
    spec.set_max_restarts(2);
    std::string job = harness_.Submit(spec);
    EXPECT_EQ(harness_.Await(job, v1::JOB_STATE_RUNNING).state(), v1::JOB_STATE_RUNNING);
    harness_.Pump();
    return job;
  }
  // What the worker was told last to prepare.
  v1::Prepare Prepared(const std::string& worker) {
    v1::Prepare prepare;
    for (const Message& message : harness_.Worker(worker).heard) {
      if (message.has_prepare()) prepare = message.prepare();
    }
    return prepare;
  }

  RecordingStore store_;
  JobHarness harness_{&store_};
};

TEST_F(JobGraphsTest, AWorkerThatKeepsGraphsIsSentEachOnce) {
  Keeps("a");
  Keeps("b");
  const std::string job = Run();
  const v1::Prepare prepare = Prepared("a");
  EXPECT_FALSE(prepare.spec().has_graph());
  EXPECT_EQ(prepare.graph_sha256(), ContentHash(SmallSpec().graph().SerializeAsString()));
  EXPECT_EQ(prepare.spec().data_path(), "d");
  EXPECT_LT(prepare.spec().ByteSizeLong(), SmallSpec().graph().ByteSizeLong());
  EXPECT_EQ(harness_.Heard("a", Message::kNeededGraph), 1);

  // The job starts again, and then another one of the same graph.
  v1::ConnectRequest failed;
  failed.mutable_failed()->set_job(job);
  failed.mutable_failed()->set_generation(1);
  failed.mutable_failed()->set_code(static_cast<int32_t>(absl::StatusCode::kUnavailable));
  harness_.jobs->OnMessage("b", failed);
  harness_.PassUntil(absl::Now() + absl::Minutes(2));
  EXPECT_EQ(harness_.Await(job, v1::JOB_STATE_RUNNING).generation(), 2);
  harness_.Pump();
  ASSERT_TRUE(harness_.jobs->Cancel(job).ok());
  harness_.Pump();
  Run();
  for (const char* worker : {"a", "b"}) {
    EXPECT_EQ(harness_.Heard(worker, Message::kPrepare), 3);
    EXPECT_EQ(harness_.Heard(worker, Message::kNeededGraph), 1);
  }
}

TEST_F(JobGraphsTest, AnOlderWorkerIsSentTheGraphItself) {
  Keeps("b");
  Run();
  EXPECT_EQ(Prepared("a").graph_sha256(), "");
  EXPECT_EQ(Prepared("a").spec().graph().SerializeAsString(),
            SmallSpec().graph().SerializeAsString());
  EXPECT_EQ(harness_.Heard("a", Message::kNeededGraph), 0);
  EXPECT_FALSE(Prepared("b").spec().has_graph());
  EXPECT_EQ(harness_.Heard("b", Message::kNeededGraph), 1);
}

TEST_F(JobGraphsTest, AWorkerIsSentTheGraphOnceInARunHoweverOftenItAsks) {
  Keeps("a");
  Keeps("b");
  harness_.Worker("a").silent_on.insert(Message::kNeededGraph);
  const std::string job = harness_.Submit(SmallSpec());
  harness_.Await(job, v1::JOB_STATE_STARTING);
  harness_.Pump();
  v1::ConnectRequest again;
  again.mutable_graph_needed()->set_job(job);
  again.mutable_graph_needed()->set_generation(1);
  for (int i = 0; i < 3; ++i) harness_.jobs->OnMessage("a", again);
  harness_.Pump();
  EXPECT_EQ(harness_.Heard("a", Message::kNeededGraph), 1);
}

TEST_F(JobGraphsTest, AGraphIsSentForARunThatStartsOnly) {
  Keeps("a");
  Keeps("b");
  const std::string job = Run();
  v1::ConnectRequest late;
  late.mutable_graph_needed()->set_job(job);
  late.mutable_graph_needed()->set_generation(1);
  harness_.jobs->OnMessage("a", late);
  late.mutable_graph_needed()->set_generation(7);
  harness_.jobs->OnMessage("a", late);
  EXPECT_EQ(harness_.Heard("a", Message::kNeededGraph), 1);
}

}  // namespace
}  // namespace stagewright
