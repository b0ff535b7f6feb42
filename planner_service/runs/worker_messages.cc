#include "planner_service/runs/worker_messages.h"

namespace stagewright {
namespace {

template <typename Message>
void Address(const Job& job, Message* message) {
  message->set_job(job.name());
  message->set_generation(job.generation);
}

EvaluationFigures FromProto(const v1::EvaluationResult& result) {
  return {result.loss(), result.predicted_samples(), result.correct_samples()};
}

}  // namespace

v1::ConnectResponse PrepareMessage(const Job& job, const v1::Cluster& cluster,
                                   const std::vector<v1::Program>& evaluations,
                                   const std::vector<std::string>& unfinished) {
  v1::ConnectResponse message;
  v1::Prepare* prepare = message.mutable_prepare();
  Address(job, prepare);
  prepare->set_run(RunName(job));
  prepare->mutable_unfinished_runs()->Assign(unfinished.begin(), unfinished.end());
  *prepare->mutable_spec() = *job.spec;
  *prepare->mutable_cluster() = cluster;
  *prepare->mutable_program() = job.plan->program();
  if (!evaluations.empty()) *prepare->mutable_evaluation_program() = evaluations.front();
  for (int i = 0; i < job.plan->lengths_size(); ++i) {
    v1::LengthPrograms* programs = prepare->add_lengths();
    *programs->mutable_program() = job.plan->lengths(i).program();
    if (!evaluations.empty())
      *programs->mutable_evaluation_program() = evaluations[static_cast<size_t>(i) + 1];
  }
  // Where that is known, from no other checkpoint that may lie beside it.
  if (!job.resume_from.empty()) prepare->mutable_spec()->set_resume_path(job.resume_from);
  prepare->set_restart(job.resume_from.empty() && (job.restarts > 0 || job.replans > 0));
  for (int64_t step = 0; step < kTracedSteps; ++step) prepare->add_traced_steps(step);
  return message;
}

void SetGraph(const Job& job, v1::Prepare& prepare) {
  *prepare.mutable_spec()->mutable_graph() = *job.planned_graph;
  prepare.clear_graph_sha256();
}

void NameGraph(const Job& job, v1::Prepare& prepare) {
  prepare.mutable_spec()->clear_graph();
  prepare.set_graph_sha256(job.planned_graph.seal()->hash);
}

v1::ConnectResponse GraphMessage(const Job& job) {
  v1::ConnectResponse message;
  v1::NeededGraph* graph = message.mutable_needed_graph();
  graph->set_graph(job.planned_graph.seal()->bytes);
  graph->set_graph_sha256(job.planned_graph.seal()->hash);
  return message;
}

v1::ConnectResponse PathsMessage(const Job& job, const std::vector<std::string>& unfinished) {
  v1::ConnectResponse message;
  v1::CheckPaths* check = message.mutable_check_paths();
  Address(job, check);
  check->set_run(RunName(job));
  check->mutable_unfinished_runs()->Assign(unfinished.begin(), unfinished.end());
  *check->mutable_spec() = *job.spec;
  check->mutable_spec()->clear_plan_options();
  check->mutable_spec()->clear_strategy();
  for (const v1::Input& input : job.graph->inputs())
    check->mutable_spec()->mutable_graph()->add_inputs()->set_name(input.name());
  return message;
}

void SetDevices(const Job& job, const std::vector<int32_t>& devices, v1::Prepare& prepare) {
  prepare.clear_devices();
  prepare.clear_device_names();
  for (const int32_t index : devices) {
    const std::string& qualified = job.devices[static_cast<size_t>(index)];
    prepare.add_devices(index);
    prepare.add_device_names(qualified.substr(qualified.find('/') + 1));
  }
}

v1::ConnectResponse ConnectMessage(const Job& job, const Run& run, int64_t unwritten_step) {
  v1::ConnectResponse message;
  v1::ConnectPeers* connect = message.mutable_connect_peers();
  Address(job, connect);
  connect->set_unwritten_step(unwritten_step);
  for (const auto& [device, address] : run.addresses()) {
    v1::DeviceAddress* out = connect->add_addresses();
    out->set_device(device);
    out->set_address(address);
  }
  return message;
}

v1::ConnectResponse StartMessage(const Job& job) {
  v1::ConnectResponse message;
  Address(job, message.mutable_start());
  return message;
}

v1::ConnectResponse GoOnMessage(const Job& job) {
  v1::ConnectResponse message;
  Address(job, message.mutable_go_on());
  return message;
}

v1::ConnectResponse TraceMessage(const Job& job, int64_t first_step, int32_t steps) {
  v1::ConnectResponse message;
  v1::TraceSteps* trace = message.mutable_trace_steps();
  Address(job, trace);
  trace->set_first_step(first_step);
  trace->set_steps(steps);
  trace->set_operators(true);
  return message;
}

v1::ConnectResponse CheckpointMessage(const Job& job, int64_t step, bool hold) {
  v1::ConnectResponse message;
  Address(job, message.mutable_checkpoint_after());
  message.mutable_checkpoint_after()->set_step(step);
  message.mutable_checkpoint_after()->set_hold(hold);
  return message;
}

v1::ConnectResponse OfferMessage(const Job& job, int64_t step) {
  v1::ConnectResponse message = CheckpointMessage(job, step, /*hold=*/true);
  message.mutable_checkpoint_after()->set_offer(true);
  return message;
}

v1::ConnectResponse ManifestMessage(const Job& job, const WrittenCheckpoint& checkpoint) {
  v1::ConnectResponse message;
  v1::WriteManifest* manifest = message.mutable_write_manifest();
  Address(job, manifest);
  manifest->set_step(checkpoint.step);
  for (const WrittenFile& file : checkpoint.files) {
    v1::CheckpointFile* out = manifest->add_files();
    out->set_name(file.name);
    out->set_bytes(file.bytes.count());
    out->set_crc32(file.crc32);
  }
  return message;
}

v1::ConnectResponse MergeMessage(const Job& job, const Run& run) {
  v1::ConnectResponse message;
  v1::Merge* merge = message.mutable_merge();
  Address(job, merge);
  for (const std::string& shard : run.completion().shards) merge->add_shards(shard);
  merge->set_checkpoint_path(job.request->output_path + "/model.safetensors");
  return message;
}

v1::ConnectResponse ReleaseMessage(const Job& job) {
  v1::ConnectResponse message;
  Address(job, message.mutable_release());
  return message;
}

v1::ConnectResponse AbortMessage(const std::string& job, int64_t generation,
                                 const std::string& reason) {
  v1::ConnectResponse message;
  message.mutable_abort()->set_job(job);
  message.mutable_abort()->set_generation(generation);
  message.mutable_abort()->set_reason(reason);
  return message;
}

v1::ConnectResponse AbortMessage(const Job& job) {
  return AbortMessage(job.name(), job.generation, job.message);
}

Preparation FromProto(const v1::Prepared& message) {
  Preparation preparation;
  preparation.first_step = message.first_step();
  preparation.total_steps = message.total_steps();
  preparation.resumed_from = message.resumed_from();
  for (const v1::DeviceAddress& address : message.addresses())
    preparation.addresses[address.device()] = address.address();
  preparation.warnings.assign(message.warnings().begin(), message.warnings().end());
  return preparation;
}

StepShare ShareOf(const v1::DeviceProgress& device, int64_t step) {
  StepShare share;
  share.figures = {step, device.loss(), device.learning_rate(), Nanos(device.step_ns()),
                   device.skipped()};
  share.loss_scale = device.loss_scale();
  if (device.has_evaluation()) share.evaluation = FromProto(device.evaluation());
  return share;
}

StepShare ShareOf(const v1::JobStep& step) {
  StepShare share;
  share.figures = {step.step(), step.loss(), step.learning_rate(), Nanos(step.step_ns()),
                   step.skipped()};
  return share;
}

v1::JobStep ToProto(const StepFigures& figures) {
  v1::JobStep step;
  step.set_step(figures.step);
  step.set_loss(figures.loss);
  step.set_learning_rate(figures.learning_rate);
  step.set_step_ns(figures.time.count());
  step.set_skipped(figures.skipped);
  return step;
}

WrittenShare FromProto(const v1::ShardWritten& message) {
  WrittenShare share;
  share.device = message.device();
  share.step = message.step();
  share.error = message.error();
  share.skipped = message.skipped();
  share.late = message.late();
  for (const v1::CheckpointFile& file : message.files())
    share.files.push_back({file.name(), Bytes(file.bytes()), file.crc32()});
  return share;
}

Completion FromProto(const v1::Finished& message) {
  Completion completion;
  completion.shards.assign(message.shards().begin(), message.shards().end());
  completion.evaluated = message.evaluated_samples();
  completion.evaluation = {message.evaluation_loss(), message.predicted_samples(),
                           message.correct_samples()};
  completion.stopped_after = message.stopped_after_step();
  return completion;
}

TimedOperator FromProto(const v1::OperatorTime& proto) {
  return {DeviceId(proto.device()), StageId(proto.stage()),    NodeId(proto.node()),
          proto.samples(),          Nanos(proto.forward_ns()), Nanos(proto.backward_ns())};
}

v1::OperatorTime ToProto(const TimedOperator& timed) {
  v1::OperatorTime proto;
  proto.set_device(timed.device.value());
  proto.set_stage(timed.stage.value());
  proto.set_node(timed.node.value());
  proto.set_samples(timed.samples);
  proto.set_forward_ns(timed.forward.count());
  proto.set_backward_ns(timed.backward.count());
  return proto;
}

}  // namespace stagewright
