#include "clients/cli/plan/measure.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clients/cli/flags/weights_place.h"
#include "common/base/units.h"
#include "common/clock/steady_now.h"
#include "common/config/number_checks.h"
#include "common/wire/job_state.h"
#include "common/wire/strategy_proto.h"
#include "common/wire/training_proto.h"
#include "planner_service/evaluator/evaluator.h"

namespace stagewright::cli {
namespace {

constexpr absl::Duration kCallDeadline = absl::Seconds(30);
// Steps are for the clock: they take as long whatever the rate, and a small one keeps numbers sane.
constexpr double kLearningRate = 1e-6;

v1::JobSpec SpecOf(const v1::PlanningProblem& problem, const MeasureFlags& flags,
                   const std::string& output) {
  v1::JobSpec spec;
  spec.set_display_name(absl::StrCat("measure ", problem.graph().name()));
  *spec.mutable_graph() = problem.graph();
  // Workers may run in other directories, so paths travel absolute.
  spec.set_weights_path(WeightsPlace(flags.weights));
  spec.set_data_path(std::filesystem::absolute(flags.data).string());
  spec.set_output_path(output);
  spec.set_overwrite(true);  // One strategy after the other.
  spec.set_mini_batch(problem.mini_batch());
  spec.set_steps(flags.steps);
  TrainingSpec training;
  training.optimizer.kind = FromProto(problem.optimizer());
  training.optimizer.learning_rate = kLearningRate;
  SetTraining(training, spec);
  spec.set_precision(problem.precision());
  return spec;
}

}  // namespace

void AddMeasureFlags(CLI::App& command, MeasureFlags& flags) {
  CLI::Option* steps =
      command
          .add_option(
              "--measure-steps", flags.steps,
              "drl_pp learns from this many real steps of each strategy, run as jobs on the "
              "workers of --planner-address; plans in this process")
          ->check(Positive());
  command.add_option("--weights", flags.weights, "of the measured jobs (.safetensors)")
      ->needs(steps);
  command.add_option("--data", flags.data, "of the measured jobs (.safetensors)")->needs(steps);
}

StepMeasurer::StepMeasurer(const v1::PlanningProblem& problem, int32_t devices,
                           const MeasureFlags& flags, const Globals& globals, absl::Time deadline,
                           SearchContext& context)
    : connection_(globals), deadline_(deadline), context_(context), devices_(devices) {
  const std::filesystem::path output =
      std::filesystem::temp_directory_path() / absl::StrCat("stagewright-measure-", FreshId());
  *request_.mutable_spec() = SpecOf(problem, flags, output.string());
  request_.mutable_spec()->set_num_devices(devices);
}

StepMeasurer::~StepMeasurer() {
  std::error_code ignored;  // Workers elsewhere write elsewhere.
  std::filesystem::remove_all(request_.spec().output_path(), ignored);
}

absl::Status StepMeasurer::CheckDevices() {
  v1::ListWorkersResponse workers;
  RETURN_IF_ERROR(connection_.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection_.jobs().ListWorkers(context, v1::ListWorkersRequest(), &workers);
  }));
  int32_t connected = 0;
  for (const v1::Worker& worker : workers.workers()) connected += worker.devices_size();
  if (connected >= devices_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("--measure-steps: the cluster has ", devices_,
                                                    " devices, the connected workers ", connected));
}

MeasureStrategy StepMeasurer::RewardOf(const Problem& problem) {
  return [this, &problem](const Strategy& strategy) -> absl::StatusOr<double> {
    RETURN_IF_ERROR(Evaluate(*problem.graph, *problem.cluster, *problem.costs, strategy,
                             {.optimizer = problem.optimizer})
                        .status());
    return Measure(strategy);
  };
}

absl::StatusOr<double> StepMeasurer::Measure(const Strategy& strategy) {
  if (!broken_.ok()) return broken_;
  if (context_.Expired()) return absl::DeadlineExceededError("the time limit was reached");
  const v1::Strategy proto = ToProto(strategy);
  const auto [entry, is_new] = known_.try_emplace(proto.SerializeAsString(), 0.0);
  if (!is_new) return entry->second;
  const absl::StatusOr<v1::Job> job = RunToTheEnd(proto);
  if (!job.ok()) {
    entry->second = job.status();
  } else if (job->state() != v1::JOB_STATE_SUCCEEDED || job->metrics().median_step_ns() <= 0) {
    entry->second = absl::AbortedError(
        absl::StrCat(job->name(), " ", JobStateName(job->state()), ": ", job->message()));
  } else {
    entry->second = ToSeconds(Nanos(job->metrics().median_step_ns()));
  }
  if (!entry->second.ok()) ++failed_;
  return entry->second;
}

absl::StatusOr<v1::Job> StepMeasurer::RunToTheEnd(const v1::Strategy& strategy) {
  *request_.mutable_spec()->mutable_strategy() = strategy;
  request_.set_request_id(FreshId());
  v1::SubmitJobResponse submitted;
  broken_ = connection_.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection_.jobs().SubmitJob(context, request_, &submitted);
  });
  if (!broken_.ok()) {
    context_.Cancel();
    return broken_;
  }
  ++jobs_;
  grpc::ClientContext context;
  context.set_deadline(ClockIn(deadline_ - SteadyNow()));
  v1::WatchJobRequest watch;
  watch.set_name(submitted.job().name());
  const auto stream = connection_.jobs().WatchJob(&context, watch);
  v1::Job job = submitted.job();
  for (v1::WatchJobResponse response; stream->Read(&response);) job = response.job();
  const absl::Status ended = connection_.Translate(stream->Finish());
  if (IsTerminal(job.state())) return job;
  if (!absl::IsDeadlineExceeded(ended)) {
    broken_ = ended.ok() ? absl::UnavailableError("the planner went away") : ended;
    context_.Cancel();
    return broken_;
  }
  Cancel(job.name());
  return absl::DeadlineExceededError(
      absl::StrCat(job.name(), " was ", JobStateName(job.state()), " at the time limit",
                   job.message().empty() ? "" : ": ", job.message()));
}

void StepMeasurer::Cancel(const std::string& name) {
  v1::CancelJobRequest request;
  request.set_name(name);
  v1::CancelJobResponse response;
  // It may have ended meanwhile; a planner that does not answer has no use for more words.
  connection_
      .Call(kCallDeadline,
            [&](grpc::ClientContext* context) {
              return connection_.jobs().CancelJob(context, request, &response);
            })
      .IgnoreError();
}

Measurement StepMeasurer::MeasurementOf(const v1::Strategy& strategy) const {
  const auto found = known_.find(strategy.SerializeAsString());
  const double seconds = found != known_.end() && found->second.ok() ? *found->second : 0;
  return {seconds, jobs_, failed_};
}

}  // namespace stagewright::cli
