#include "clients/cli/jobs/verify.h"

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/jobs/follow.h"
#include "common/config/number_checks.h"
#include "common/graph/graph.h"
#include "common/strategy/strategy.h"
#include "common/wire/graph_proto.h"
#include "common/wire/job_state.h"
#include "common/wire/strategy_proto.h"

namespace stagewright::cli {
namespace {

constexpr absl::Duration kCallDeadline = absl::Seconds(30);

// A directory for what the jobs write, removed in the end.
class Scratch {
 public:
  explicit Scratch(const std::string& output_path)
      : path_(std::filesystem::path(output_path) / absl::StrCat("verify-", FreshId())) {}
  ~Scratch() {
    std::error_code ignored;  // Workers elsewhere write elsewhere.
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string At(const char* name) const { return (path_ / name).string(); }

 private:
  const std::filesystem::path path_;
};

// The first steps of the job and nothing else: no evaluation, no checkpoints.
v1::JobSpec Trial(const v1::JobSpec& spec, int64_t steps, const char* what,
                  const std::string& output_path) {
  v1::JobSpec trial = spec;
  trial.set_display_name(absl::StrCat("verify ", spec.display_name(), ": ", what));
  trial.set_output_path(output_path);
  trial.clear_evaluation_data_path();
  trial.clear_evaluate_every();
  trial.clear_patience();
  trial.clear_checkpoints();
  trial.clear_max_restarts();
  trial.clear_preemptible();
  trial.mutable_records()->set_steps(steps);
  return trial;
}

// All operators on one device, the whole mini-batch at once as far as the graph allows.
v1::Strategy SingleDevice(const Graph& graph, int64_t mini_batch) {
  Strategy strategy;
  strategy.mini_batch = mini_batch;
  Stage& stage = strategy.stages.emplace_back();
  for (const int32_t v : graph.dag().order()) stage.nodes.emplace_back(v);
  stage.micro_batch = mini_batch;
  while (stage.micro_batch > 1 &&
         (mini_batch % stage.micro_batch != 0 || stage.micro_batch > graph.samples().most))
    --stage.micro_batch;
  stage.devices = {DeviceId(0)};
  stage.schedule.in_flight = stage.micro_batch;
  return ToProto(strategy);
}

// Why results of the plan are none of a single device, by definition.
absl::Status CheckComparable(const Graph& graph, const v1::Strategy& strategy) {
  if (strategy.asynchronous()) {
    return absl::FailedPreconditionError(
        "--verify: an asynchronous plan updates with gradients of older weights, so a single "
        "device does not compute what it does");
  }
  for (const v1::Stage& stage : strategy.stages()) {
    if (stage.micro_batch() == strategy.mini_batch() && stage.devices_size() == 1) continue;
    for (const int32_t index : stage.nodes()) {
      // What comes out where operators are cut lies behind, and depends on no other sample.
      if (index >= graph.size()) continue;
      const Node& node = graph.node(NodeId(index));
      if (!node.batch_dependent) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "--verify: \"", node.module.empty() ? node.name : node.module,
          "\" depends on which samples share a pass, and the plan runs ",
          stage.micro_batch() / stage.devices_size(), " of ", strategy.mini_batch(),
          " at once there, so results differ from a single device's by definition; with "
          "--batch-statistics whole they do not"));
    }
  }
  return absl::OkStatus();
}

// Submits the job and waits for its end, however that is; with its plan.
absl::StatusOr<v1::Job> RunToTheEnd(Connection& connection, const v1::JobSpec& spec) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(FreshId());
  v1::SubmitJobResponse submitted;
  RETURN_IF_ERROR(connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().SubmitJob(context, request, &submitted);
  }));
  RETURN_IF_ERROR(Follow(connection, submitted.job().name(), {.known = true}).status());
  v1::GetJobRequest get;
  get.set_name(submitted.job().name());
  v1::GetJobResponse job;
  RETURN_IF_ERROR(connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().GetJob(context, get, &job);
  }));
  return job.job();
}

int ReportFailed(const v1::Job& job, const char* what) {
  std::cerr << "stagewright: --verify: " << what << " (" << job.name() << ") "
            << JobStateName(job.state()) << ": " << job.message() << std::endl;
  return kJobNotWell;
}

void ReportVerified(int64_t steps, const v1::Job& plan, const v1::Job& single, bool json,
                    bool only) {
  if (json && only) {
    const nlohmann::json result = {
        {"verified_steps", steps}, {"plan_job", plan.name()}, {"single_job", single.name()}};
    std::cout << result.dump(2) << std::endl;
    return;
  }
  std::cerr << "verified: the first " << steps << (steps == 1 ? " step" : " steps")
            << " of the plan (" << plan.name() << ") and of a single device (" << single.name()
            << ") have the same losses, gradients and state" << std::endl;
}

}  // namespace

void AddVerifyFlags(CLI::App& command, VerifyFlags& flags) {
  CLI::Option* steps =
      command
          .add_option("--verify", flags.steps,
                      "first run so many steps of the plan and of a single device, and compare "
                      "losses, gradients and state")
          ->check(Positive());
  command.add_flag("--verify-only", flags.only, "with --verify: do not start the job")
      ->needs(steps);
}

int Verify(Connection& connection, const VerifyFlags& flags, bool json, v1::JobSpec& spec) {
  auto graph = FromProto(spec.graph());
  if (!graph.ok()) return Report(graph.status());
  v1::Strategy asked;  // As far as it is known before planning.
  asked.set_asynchronous(spec.plan_options().asynchronous());
  if (absl::Status status = CheckComparable(*graph, asked); !status.ok()) return Report(status);
  const Scratch scratch(spec.output_path());

  const auto plan =
      RunToTheEnd(connection, Trial(spec, flags.steps, "the plan", scratch.At("plan")));
  if (!plan.ok()) return Report(plan.status());
  if (plan->state() != v1::JOB_STATE_SUCCEEDED) return ReportFailed(*plan, "the job of the plan");
  const v1::Strategy& strategy = plan->plan().strategy();
  if (absl::Status status = CheckComparable(*graph, strategy); !status.ok()) return Report(status);

  v1::JobSpec alone = Trial(spec, flags.steps, "a single device", scratch.At("single"));
  alone.mutable_records()->set_compare_with(scratch.At("plan"));
  alone.clear_planner();
  alone.clear_plan_options();
  *alone.mutable_strategy() = SingleDevice(*graph, spec.mini_batch());
  alone.set_num_devices(1);
  const auto single = RunToTheEnd(connection, alone);
  if (!single.ok()) return Report(single.status());
  if (single->failure_code() == static_cast<int32_t>(absl::StatusCode::kAborted)) {
    std::cerr << "stagewright: --verify: the plan of " << plan->name()
              << " does not compute what a single device does: " << single->message() << std::endl;
    return kDiffers;
  }
  if (single->state() != v1::JOB_STATE_SUCCEEDED)
    return ReportFailed(*single, "the job of a single device");
  ReportVerified(flags.steps, *plan, *single, json, flags.only);
  *spec.mutable_strategy() = strategy;
  spec.set_num_devices(plan->devices_size());
  return kSuccess;
}

}  // namespace stagewright::cli
