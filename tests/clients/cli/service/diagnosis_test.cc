#include "clients/cli/service/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace stagewright::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

v1::ListWorkersResponse Workers(const std::vector<std::string>& versions) {
  v1::ListWorkersResponse workers;
  for (const std::string& version : versions) {
    v1::Worker* worker = workers.add_workers();
    worker->set_name("w" + std::to_string(workers.workers_size() - 1));
    worker->set_version(version);
    worker->mutable_last_heartbeat_time()->set_seconds(1'000'000);
    worker->add_devices()->set_job(workers.workers_size() == 1 ? "jobs/1" : "");
  }
  return workers;
}

void ExpectSays(const Finding& finding, Verdict verdict, const std::string& detail) {
  EXPECT_EQ(finding.verdict, verdict) << finding.detail;
  EXPECT_THAT(finding.detail, HasSubstr(detail));
  EXPECT_EQ(finding.advice.empty(), verdict == Verdict::kGood) << finding.advice;
}

TEST(Diagnosis, VersionsMustAgree) {
  v1::GetServerResponse server;
  server.set_version("1.0");
  ExpectSays(CheckVersions("1.0", server, Workers({"1.0"})), Verdict::kGood, "planner 1.0");
  ExpectSays(CheckVersions("0.9", server, Workers({"1.0"})), Verdict::kWarning, "client 0.9");
  ExpectSays(CheckVersions("1.0", server, Workers({"1.0", "0.9"})), Verdict::kBad, "w1 0.9");
}

TEST(Diagnosis, WorkersMustBeThereAndHeardOf) {
  ExpectSays(CheckWorkers({}, {}, kNow), Verdict::kBad, "none");
  ExpectSays(CheckWorkers({}, Workers({"1", "1"}), kNow), Verdict::kGood,
             "2 connected, 1 of 2 devices held");
  ExpectSays(CheckWorkers({}, Workers({"1"}), kNow + absl::Seconds(9)), Verdict::kWarning, "w0");
}

TEST(Diagnosis, WorkersHaveTimeToComeBackToAPlanner) {
  v1::GetServerResponse server;
  server.mutable_start_time()->set_seconds(absl::ToUnixSeconds(kNow) - 4);
  ExpectSays(CheckWorkers(server, {}, kNow), Verdict::kWarning, "started 4 s ago");
  // The planner's clock is ahead.
  ExpectSays(CheckWorkers(server, {}, kNow - absl::Seconds(9)), Verdict::kWarning,
             "started 0 s ago");
  ExpectSays(CheckWorkers(server, {}, kNow + absl::Seconds(20)), Verdict::kBad, "none");
}

TEST(Diagnosis, WorkersShouldTakeJobs) {
  v1::ListWorkersResponse workers = Workers({"1", "1", "1"});
  workers.mutable_workers(0)->set_availability(v1::WORKER_AVAILABILITY_CORDONED);
  workers.mutable_workers(1)->set_availability(v1::WORKER_AVAILABILITY_DRAINING);
  v1::WorkerDevice* device = workers.mutable_workers(2)->mutable_devices(0);
  device->set_name("cpu0");
  device->mutable_quarantined_until()->set_seconds(1'000'300);
  device->set_quarantine_reason("worker w2 was lost");
  ExpectSays(CheckWorkers({}, workers, kNow), Verdict::kWarning,
             "w0 is cordoned, w1 is draining, w2/cpu0 is in quarantine (worker w2 was lost)");
}

TEST(Diagnosis, TheStateNeedsRoom) {
  v1::GetServerResponse server;
  server.set_state_path(":memory:");
  ExpectSays(CheckState(server, true), Verdict::kWarning, ":memory: keeps nothing");
  server.set_state_path("etcd://10.0.0.1:2379/prod");
  ExpectSays(CheckState(server, true), Verdict::kGood, "etcd://10.0.0.1:2379/prod");
  server.set_state_path("/data/state.db");
  server.set_state_bytes(1 << 20);
  server.set_state_free_bytes(int64_t{5} << 30);
  ExpectSays(CheckState(server, true), Verdict::kGood, "5 GiB");
  server.set_state_free_bytes(1000);
  ExpectSays(CheckState(server, true), Verdict::kBad, "/data/state.db");
}

// A file that was moved or may not grow has all the room of its disk.
TEST(Diagnosis, TheStateMustBeWritable) {
  v1::GetServerResponse server;
  server.set_state_path("/data/state.db");
  server.set_state_bytes(1 << 20);
  server.set_state_free_bytes(int64_t{5} << 30);
  ExpectSays(CheckState(server, false), Verdict::kBad, "/data/state.db cannot be written");
}

TEST(Diagnosis, PlansShouldNotWait) {
  v1::GetServerResponse server;
  ExpectSays(CheckQueue(server), Verdict::kGood, "0 plans");
  server.set_plans_waiting(7);
  ExpectSays(CheckQueue(server), Verdict::kWarning, "7 plans");
}

TEST(Diagnosis, AssumedLinksAreNamed) {
  v1::MeasureTopologyResponse topology;
  topology.set_summary("links measured 12:03");
  ExpectSays(CheckLinks(absl::OkStatus(), topology), Verdict::kGood, "12:03");
  topology.set_summary("links measured 12:03, but assumed: a - b (no answer)");
  ExpectSays(CheckLinks(absl::OkStatus(), topology), Verdict::kWarning, "a - b");
}

TEST(Diagnosis, LinksThatMayNotBeAskedForAreNotLeftOut) {
  const absl::Status refused = absl::PermissionDeniedError("MeasureTopology needs a submitter");
  const Finding finding = CheckLinks(refused, {});
  ExpectSays(finding, Verdict::kWarning, "not known: MeasureTopology needs a submitter");
  EXPECT_EQ(finding.advice, "ask with a token that may submit jobs");
}

v1::Job FailedJob(int number, int64_t seconds_ago) {
  v1::Job job;
  job.set_name(absl::StrCat("jobs/", number));
  job.set_state(v1::JOB_STATE_FAILED);
  job.mutable_end_time()->set_seconds(1'000'000 - seconds_ago);
  return job;
}

TEST(Diagnosis, JobsThatFailedOfLateAreNamed) {
  v1::Job running;
  running.set_state(v1::JOB_STATE_RUNNING);
  std::vector<v1::Job> jobs = {running, FailedJob(3, 100'000)};
  ExpectSays(CheckJobs(jobs, kNow), Verdict::kGood, "1 running, 0 waiting");
  EXPECT_THAT(CheckJobs(jobs, kNow).detail, Not(HasSubstr("jobs/3")));
  jobs[1] = FailedJob(3, 100);
  ExpectSays(CheckJobs(jobs, kNow), Verdict::kWarning, "failed today: jobs/3");
  for (int i = 4; i < 20; ++i) jobs.push_back(FailedJob(i, 100));
  ExpectSays(CheckJobs(jobs, kNow), Verdict::kWarning, "jobs/12 and 7 more");
}

TEST(Diagnosis, AJobThatWaitsForWhatNobodyHasIsNamed) {
  const auto waiting = [](const std::string& name, int64_t since) {
    v1::Job job;
    job.set_name(name);
    job.set_state(v1::JOB_STATE_WAITING_FOR_DEVICES);
    job.set_message("4 devices are needed, 2 are free");
    job.mutable_create_time()->set_seconds(since);
    return job;
  };
  std::vector<v1::Job> jobs = {waiting("jobs/8", 200), waiting("jobs/7", 100)};
  ExpectSays(CheckJobs(jobs, kNow), Verdict::kWarning,
             "2 waiting; jobs/7 waits: 4 devices are needed, 2 are free");
  jobs.emplace_back().set_state(v1::JOB_STATE_RUNNING);  // Its turn comes.
  ExpectSays(CheckJobs(jobs, kNow), Verdict::kGood, "1 running, 2 waiting");
}

}  // namespace
}  // namespace stagewright::cli
