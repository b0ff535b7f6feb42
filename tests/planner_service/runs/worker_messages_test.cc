#include "planner_service/runs/worker_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "common/artifacts/content_hash.h"
#include "planner_service/jobs/job_request.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;

// Its second run, on three devices of two workers.
Job RunningJob() {
  Job job;
  job.number = 7;
  job.generation = 2;
  job.restarts = 1;
  job.devices = {"a/cpu0", "b/cpu0", "a/cpu1"};
  job.spec = std::make_shared<const v1::JobSpec>();
  v1::Graph graph;
  graph.set_name("net");
  job.graph = job.planned_graph = Sealed<v1::Graph>(graph);
  v1::Plan plan;
  plan.add_lengths();
  for (int i = 0; i < 3; ++i) plan.mutable_program()->add_devices()->set_device(i);
  job.plan = Sealed<v1::Plan>(plan);
  JobRequest request;
  request.output_path = "/out";
  job.request = std::make_shared<const JobRequest>(request);
  return job;
}

TEST(WorkerMessages, NameTheJobAndItsGeneration) {
  const Job job = RunningJob();
  EXPECT_EQ(StartMessage(job).start().job(), "jobs/7");
  EXPECT_EQ(StartMessage(job).start().generation(), 2);
  EXPECT_EQ(ReleaseMessage(job).release().generation(), 2);
  const v1::ConnectResponse checkpoint = CheckpointMessage(job, 30);
  EXPECT_EQ(checkpoint.checkpoint_after().job(), "jobs/7");
  EXPECT_EQ(checkpoint.checkpoint_after().step(), 30);
  const v1::ConnectResponse abort = AbortMessage("jobs/7", 1, "over");
  EXPECT_EQ(abort.abort().generation(), 1);
  EXPECT_EQ(abort.abort().reason(), "over");
}

TEST(PathsMessage, HasThePathsAndTheInputsAndNoPlan) {
  Job job = RunningJob();
  v1::JobSpec spec;
  spec.set_data_path("/data");
  spec.mutable_plan_options()->set_manual("{}");
  spec.mutable_strategy()->add_stages();
  job.spec = std::make_shared<const v1::JobSpec>(spec);
  v1::Graph graph = *job.graph;
  graph.add_inputs()->set_name("x");
  graph.add_nodes()->set_name("relu");
  job.graph = Sealed<v1::Graph>(graph);
  const v1::CheckPaths check = PathsMessage(job, {"jobs-3-a1"}).check_paths();
  EXPECT_EQ(check.job(), "jobs/7");
  EXPECT_EQ(check.run(), RunName(job));
  EXPECT_THAT(check.unfinished_runs(), ElementsAre("jobs-3-a1"));
  EXPECT_EQ(check.spec().data_path(), "/data");
  ASSERT_EQ(check.spec().graph().inputs_size(), 1);
  EXPECT_EQ(check.spec().graph().inputs(0).name(), "x");
  EXPECT_EQ(check.spec().graph().nodes_size(), 0);
  EXPECT_FALSE(check.spec().has_strategy() || check.spec().has_plan_options());
}

TEST(PrepareMessage, HasTheGraphOrItsName) {
  const Job job = RunningJob();
  v1::ConnectResponse message = PrepareMessage(job, {}, {}, {"jobs-3-a1"});
  v1::Prepare& prepare = *message.mutable_prepare();
  EXPECT_THAT(prepare.unfinished_runs(), ElementsAre("jobs-3-a1"));
  EXPECT_FALSE(prepare.spec().has_graph());
  const v1::ConnectResponse graph = GraphMessage(job);
  EXPECT_EQ(graph.needed_graph().graph(), job.planned_graph->SerializeAsString());
  NameGraph(job, prepare);
  EXPECT_FALSE(prepare.spec().has_graph());
  EXPECT_EQ(prepare.graph_sha256(), ContentHash(graph.needed_graph().graph()));
  SetGraph(job, prepare);
  EXPECT_EQ(prepare.spec().graph().name(), "net");
  EXPECT_EQ(prepare.graph_sha256(), "");
}

TEST(PrepareMessage, HasAnEvaluationForTheGraphAndForEachLength) {
  std::vector<v1::Program> evaluations(2);
  evaluations[0].set_mini_batch(4);
  evaluations[1].set_mini_batch(8);
  const v1::ConnectResponse message = PrepareMessage(RunningJob(), {}, evaluations, {});
  const v1::Prepare& prepare = message.prepare();
  EXPECT_EQ(prepare.run(), RunName(RunningJob()));
  EXPECT_TRUE(prepare.restart());
  EXPECT_EQ(prepare.evaluation_program().mini_batch(), 4);
  ASSERT_EQ(prepare.lengths_size(), 1);
  EXPECT_EQ(prepare.lengths(0).evaluation_program().mini_batch(), 8);
  EXPECT_FALSE(PrepareMessage(RunningJob(), {}, {}, {}).prepare().has_evaluation_program());
}

TEST(SetDevices, NamesThoseOfOneWorker) {
  v1::Prepare prepare;
  prepare.add_devices(9);
  SetDevices(RunningJob(), {0, 2}, prepare);
  EXPECT_THAT(prepare.devices(), ElementsAre(0, 2));
  EXPECT_THAT(prepare.device_names(), ElementsAre("cpu0", "cpu1"));
}

TEST(MergeMessage, HasTheShardsOfAllWorkers) {
  const Job job = RunningJob();
  stagewright::Run run(job, absl::UnixEpoch());
  v1::Finished finished;
  finished.add_shards("s1");
  finished.set_evaluated_samples(5);
  finished.set_predicted_samples(4);
  finished.set_correct_samples(3);
  finished.set_stopped_after_step(20);
  EXPECT_FALSE(run.Complete("a", FromProto(finished)));
  finished.set_shards(0, "s0");
  ASSERT_TRUE(run.Complete("b", FromProto(finished)));
  EXPECT_EQ(run.completion().evaluated, 10);
  EXPECT_EQ(run.completion().evaluation.predicted, 8);
  EXPECT_EQ(run.completion().evaluation.correct, 6);
  EXPECT_EQ(run.completion().stopped_after, 20);
  const v1::ConnectResponse merge = MergeMessage(job, run);
  EXPECT_THAT(merge.merge().shards(), ElementsAre("s0", "s1"));
  EXPECT_EQ(merge.merge().checkpoint_path(), "/out/model.safetensors");
}

TEST(ConnectMessage, HasTheAddressesThatWorkersGave) {
  const Job job = RunningJob();
  stagewright::Run run(job, absl::UnixEpoch());
  v1::Prepared prepared;
  prepared.set_total_steps(6);
  v1::DeviceAddress* address = prepared.add_addresses();
  address->set_device(2);
  address->set_address("there");
  ASSERT_EQ(run.Prepare("a", FromProto(prepared)), absl::OkStatus());
  EXPECT_EQ(run.total_steps(), 6);
  const v1::ConnectResponse connect = ConnectMessage(job, run, 40);
  ASSERT_EQ(connect.connect_peers().addresses_size(), 1);
  EXPECT_EQ(connect.connect_peers().addresses(0).device(), 2);
  EXPECT_EQ(connect.connect_peers().addresses(0).address(), "there");
  EXPECT_EQ(connect.connect_peers().unwritten_step(), 40);
}

TEST(WrittenShare, BecomesAManifest) {
  v1::ShardWritten written;
  written.set_step(30);
  v1::CheckpointFile* file = written.add_files();
  file->set_name("f");
  file->set_bytes(100);
  file->set_crc32(5);
  const WrittenShare share = FromProto(written);
  EXPECT_EQ(share.step, 30);
  const v1::ConnectResponse message = ManifestMessage(RunningJob(), {share.step, share.files, ""});
  EXPECT_EQ(message.write_manifest().step(), 30);
  ASSERT_EQ(message.write_manifest().files_size(), 1);
  EXPECT_EQ(message.write_manifest().files(0).SerializeAsString(), file->SerializeAsString());
}

TEST(ShareOf, KeepsTheFiguresOfAStep) {
  v1::DeviceProgress progress;
  progress.set_loss(0.5);
  progress.set_learning_rate(0.1);
  progress.set_step_ns(40);
  progress.set_skipped(true);
  progress.set_loss_scale(1024);
  progress.mutable_evaluation()->set_loss(2);
  const StepShare share = ShareOf(progress, 9);
  EXPECT_EQ(share.loss_scale, 1024);
  ASSERT_TRUE(share.evaluation.has_value());
  EXPECT_EQ(share.evaluation->loss, 2);
  const StepShare again = ShareOf(ToProto(share.figures));
  EXPECT_EQ(again.figures.step, 9);
  EXPECT_EQ(again.figures.loss, 0.5);
  EXPECT_EQ(again.figures.learning_rate, 0.1);
  EXPECT_EQ(again.figures.time, 40);
  EXPECT_TRUE(again.figures.skipped);
}

}  // namespace
}  // namespace stagewright
