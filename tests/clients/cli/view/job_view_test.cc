#include "clients/cli/view/job_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace stagewright::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::Job RunningJob() {
  v1::Job job;
  job.set_name("jobs/7");
  job.mutable_spec()->set_display_name("digits");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_create_time()->set_seconds(86400);
  job.mutable_metrics()->set_step(30);
  job.mutable_metrics()->set_total_steps(120);
  job.mutable_metrics()->set_loss(0.5);
  job.mutable_metrics()->set_step_ns(2'000'000);
  job.mutable_metrics()->set_accuracy(-1);
  return job;
}

TEST(JobsText, HasALineForEachJob) {
  v1::ListJobsResponse jobs;
  *jobs.add_jobs() = RunningJob();
  jobs.add_jobs()->set_name("jobs/6");
  const std::string text = JobsText(jobs);
  EXPECT_THAT(text, HasSubstr("jobs/7"));
  EXPECT_THAT(text, HasSubstr("30/120"));
  EXPECT_THAT(text, HasSubstr("0.5000"));
  EXPECT_THAT(text, HasSubstr("1970-01-02 00:00:00"));
  EXPECT_THAT(text, HasSubstr("restarts"));
  EXPECT_THAT(text, HasSubstr("checkpoint"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
}

TEST(JobsText, SaysPriorityAndPlaceInTheQueue) {
  v1::ListJobsResponse jobs;
  *jobs.add_jobs() = RunningJob();
  v1::Job* waits = jobs.add_jobs();
  waits->set_name("jobs/8");
  waits->mutable_spec()->set_priority(-12);
  waits->set_queue_position(34);
  waits->set_message("waits for 2 free devices: 1 is free");
  const std::string text = JobsText(jobs);
  for (const char* part : {"priority", "queue", "-12", "34", "waits for 2 free devices"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_EQ(JobJson(*waits)["queue_position"], 34);
  EXPECT_EQ(JobJson(*waits)["priority"], -12);
}

TEST(JobJson, LeavesOutWhatIsNotKnown) {
  v1::Job job = RunningJob();
  nlohmann::json json = JobJson(job);
  EXPECT_EQ(json["name"], "jobs/7");
  EXPECT_EQ(json["step"], 30);
  EXPECT_DOUBLE_EQ(json["step_seconds"], 0.002);
  EXPECT_EQ(json["create_time"], "1970-01-02T00:00:00Z");
  EXPECT_EQ(json["end_time"], nullptr);
  for (const char* key : {"accuracy", "evaluation_loss", "checkpoint", "warnings"})
    EXPECT_FALSE(json.contains(key)) << key;
  job.mutable_metrics()->set_accuracy(0.75);
  job.mutable_metrics()->set_evaluation_loss(0.25);
  job.set_checkpoint_path("/out");
  job.add_warnings("careful");
  job.mutable_metrics()->add_memory()->set_measured_peak_bytes(9);
  json = JobJson(job);
  EXPECT_EQ(json["accuracy"], 0.75);
  EXPECT_EQ(json["evaluation_loss"], 0.25);
  EXPECT_EQ(json["checkpoint"], "/out");
  EXPECT_EQ(json["warnings"], nlohmann::json::array({"careful"}));
  EXPECT_EQ(json["memory"][0]["measured_peak_bytes"], 9);
}

TEST(JobSummary, NamesStragglers) {
  v1::Job job = RunningJob();
  EXPECT_THAT(JobSummary(job), Not(HasSubstr("straggler")));
  EXPECT_FALSE(JobJson(job).contains("stragglers"));
  v1::Straggler* straggler = job.add_stragglers();
  straggler->set_device("w1/cpu0");
  straggler->set_stage(2);
  straggler->set_ratio(1.84);
  straggler->set_since_step(40);
  straggler->set_busy_ns(14'100'000);
  straggler->set_expected_ns(7'660'000);
  EXPECT_THAT(JobSummary(job),
              HasSubstr("  straggler        w1/cpu0 takes 1.8 times as long as its like since step "
                        "40: stage 2, 14.1 ms of a step instead of 7.66 ms\n"));
  const nlohmann::json json = JobJson(job)["stragglers"];
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0]["device"], "w1/cpu0");
  EXPECT_EQ(json[0]["ratio"], 1.84);
  EXPECT_DOUBLE_EQ(json[0]["busy_seconds"], 0.0141);
}

TEST(Workers, AreShownByDevice) {
  v1::ListWorkersResponse workers;
  v1::Worker* worker = workers.add_workers();
  worker->set_name("w0");
  for (const char* name : {"cpu0", "cpu1"}) worker->add_devices()->set_name(name);
  worker->mutable_devices(1)->set_job("jobs/7");
  const std::string text = WorkersText(workers);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, HasSubstr("jobs/7"));
  const nlohmann::json json = WorkersJson(workers);
  EXPECT_EQ(json["workers"][0]["devices"][1]["job"], "jobs/7");
  EXPECT_EQ(json["workers"][0]["last_heartbeat"], nullptr);
}

TEST(Workers, SayWhetherTheyTakeJobs) {
  v1::ListWorkersResponse workers;
  v1::Worker* worker = workers.add_workers();
  worker->set_availability(v1::WORKER_AVAILABILITY_CORDONED);
  for (const char* name : {"cpu0", "cpu1", "cpu2"}) worker->add_devices()->set_name(name);
  worker->mutable_devices(1)->set_ending("jobs/7");
  worker->mutable_devices(2)->mutable_quarantined_until()->set_seconds(86'400);
  worker->mutable_devices(2)->set_quarantine_reason("worker w0 was lost");
  const std::string text = WorkersText(workers);
  for (const char* said : {"cordoned", "ending jobs/7", "quarantined until 1970-01-02"})
    EXPECT_THAT(text, HasSubstr(said));
  const nlohmann::json json = WorkersJson(workers)["workers"][0];
  EXPECT_EQ(json["availability"], "cordoned");
  EXPECT_EQ(json["devices"][1]["ending"], "jobs/7");
  EXPECT_EQ(json["devices"][2]["quarantined_until"], "1970-01-02T00:00:00Z");
  EXPECT_EQ(json["devices"][2]["quarantine_reason"], "worker w0 was lost");
  EXPECT_FALSE(json["devices"][1].contains("quarantined_until"));
}

TEST(ProgressLine, HasStepAndLoss) {
  EXPECT_THAT(ProgressLine(RunningJob()), HasSubstr("step 30/120  loss 0.5"));
}

TEST(JobSummary, SaysHowItEnded) {
  v1::Job job = RunningJob();
  job.set_state(v1::JOB_STATE_FAILED);
  job.set_message("no memory");
  EXPECT_THAT(JobSummary(job), HasSubstr("no memory"));
  job.set_message("");
  EXPECT_THAT(JobSummary(job), Not(HasSubstr("no memory")));
}

TEST(SpecText, SaysWhatWasAskedForAndWhatCameOfIt) {
  v1::Job job = RunningJob();
  job.mutable_spec()->set_output_path("/data/run");
  job.mutable_spec()->set_epochs(3);
  job.mutable_spec()->set_max_restarts(5);
  job.set_restarts(2);
  job.set_checkpoint_step(75);
  job.mutable_checkpoint_time()->set_seconds(86460);
  const std::string text = SpecText(job);
  for (const char* part :
       {"/data/run", "3 epochs", "restarts 2 of 5", "step 75, 1970-01-02 00:01:00"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_EQ(SpecJson(job.spec())["output_path"], "/data/run");
  EXPECT_THAT(text, Not(HasSubstr("place")));
  job.mutable_spec()->set_priority(5);
  job.mutable_spec()->set_preemptible(true);
  job.set_preemptions(2);
  job.set_queue_position(3);
  job.set_message("3rd in the queue");
  EXPECT_THAT(SpecText(job), HasSubstr("5, preemptible, preempted 2 times\n"));
  EXPECT_THAT(SpecText(job), HasSubstr("place 3: 3rd in the queue\n"));
}

}  // namespace
}  // namespace stagewright::cli
