#include "clients/cli/jobs/submit_command.h"

#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "clients/cli/connection.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/files/plan_file.h"
#include "clients/cli/flags/named_option.h"
#include "clients/cli/flags/plan_flags.h"
#include "clients/cli/flags/training_flags.h"
#include "clients/cli/flags/weights_place.h"
#include "clients/cli/jobs/file_check.h"
#include "clients/cli/jobs/verify.h"
#include "clients/cli/jobs/watch.h"
#include "clients/cli/view/job_view.h"
#include "common/artifacts/transfer.h"
#include "common/config/number_checks.h"
#include "common/wire/graph_file.h"
#include "common/wire/graph_proto.h"
#include "common/wire/training_proto.h"

namespace stagewright::cli {
namespace {

constexpr absl::Duration kCallDeadline = absl::Seconds(30);
constexpr Named<v1::LossPolicy> kLossPolicyNames[] = {{v1::LOSS_POLICY_SHRINK, "shrink"},
                                                      {v1::LOSS_POLICY_WAIT, "wait"},
                                                      {v1::LOSS_POLICY_FAIL, "fail"}};
constexpr Named<v1::GrowthPolicy> kGrowthPolicyNames[] = {{v1::GROWTH_POLICY_BACK, "back"},
                                                          {v1::GROWTH_POLICY_FREE, "free"},
                                                          {v1::GROWTH_POLICY_NONE, "none"}};

struct SubmitFlags {
  std::string graph, weights, data, evaluation_data, output, resume;
  std::string name, planner, plan_file, request_id;
  TrainingFlags training;
  int64_t mini_batch = 0, steps = 0, epochs = 0;
  uint64_t seed = 0;
  int32_t devices = 0, max_restarts = 0, priority = 0;
  bool preemptible = false;
  v1::LossPolicy on_loss = v1::LOSS_POLICY_UNSPECIFIED;
  v1::GrowthPolicy grow = v1::GROWTH_POLICY_UNSPECIFIED;
  bool no_shuffle = false, overwrite = false;
  double step_timeout_seconds = 60;
  v1::PlanOptions plan_options;
  VerifyFlags verify;
  bool watch = false, validate_only = false, check_version = false;
};

// Workers may run in other directories, so paths travel absolute.
std::string Absolute(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).string();
}

// Every place of "input=place,..." (common/data/data_files.h says what data paths are), or
// the path itself.
std::string AbsoluteData(const std::string& path) {
  if (path.find('=') == std::string::npos || std::filesystem::exists(path)) return Absolute(path);
  std::vector<std::string> parts = absl::StrSplit(path, ',');
  for (std::string& part : parts) {
    const size_t at = part.find('=');
    if (at == std::string::npos || part.find('/') < at) return Absolute(path);
    part = part.substr(0, at + 1) + Absolute(part.substr(at + 1));
  }
  return absl::StrJoin(parts, ",");
}

// Reads the graph and the plan, if there is one.
absl::StatusOr<v1::JobSpec> MakeSpec(const SubmitFlags& flags) {
  v1::JobSpec spec;
  ASSIGN_OR_RETURN(*spec.mutable_graph(), ReadGraphProto(flags.graph));
  spec.set_display_name(flags.name.empty() ? spec.graph().name() : flags.name);
  spec.set_weights_path(WeightsPlace(flags.weights));
  spec.set_data_path(AbsoluteData(flags.data));
  spec.set_evaluation_data_path(AbsoluteData(flags.evaluation_data));
  spec.set_resume_path(Absolute(flags.resume));
  spec.set_output_path(Absolute(flags.output));
  spec.set_overwrite(flags.overwrite);
  ASSIGN_OR_RETURN(const TrainingSpec training, MakeTraining(flags.training));
  SetTraining(training, spec);
  spec.set_mini_batch(flags.mini_batch);
  spec.set_steps(flags.steps);
  spec.set_epochs(flags.epochs);
  spec.set_seed(flags.seed);
  spec.set_no_shuffle(flags.no_shuffle);
  spec.set_num_devices(flags.devices);
  spec.set_max_restarts(flags.max_restarts);
  spec.set_on_loss(flags.on_loss);
  spec.set_grow(flags.grow);
  spec.set_priority(flags.priority);
  spec.set_preemptible(flags.preemptible);
  spec.set_step_timeout_ns(static_cast<int64_t>(flags.step_timeout_seconds * 1e9));
  spec.set_planner(flags.planner);
  *spec.mutable_plan_options() = flags.plan_options;
  if (!flags.plan_file.empty()) {
    RETURN_IF_ERROR(SetManualPlan(flags.plan_file, *spec.mutable_plan_options()));
    if (spec.planner().empty()) spec.set_planner("manual");
  }
  return spec;
}

absl::StatusOr<v1::Job> Send(Connection& connection, const v1::JobSpec& spec,
                             const SubmitFlags& flags) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(flags.request_id.empty() ? FreshId() : flags.request_id);
  request.set_validate_only(flags.validate_only);
  if (flags.check_version) {
    ASSIGN_OR_RETURN(*request.mutable_plan_basis(), ReadPlanBasis(flags.plan_file));
  }
  v1::SubmitJobResponse response;
  RETURN_IF_ERROR(connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().SubmitJob(context, request, &response);
  }));
  return response.job();
}

// Looks at the files, and puts the weights into the store of artifacts, if there is one.
absl::Status CheckAndPut(const SubmitFlags& flags, const Globals& globals, v1::JobSpec& spec) {
  const auto graph = FromProto(spec.graph());
  if (!graph.ok()) return Annotate(graph.status(), flags.graph);
  ASSIGN_OR_RETURN(const Artifacts artifacts, Artifacts::Open({globals.artifacts}));
  RETURN_IF_ERROR(CheckFiles(*graph, spec, artifacts));
  if (!artifacts.has_store() || flags.validate_only || IsArtifactName(spec.weights_path()))
    return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string name, PutArtifact(artifacts.store(), spec.weights_path()));
  spec.set_weights_path(name);
  return absl::OkStatus();
}

int RunSubmit(const SubmitFlags& flags, const Globals& globals) {
  auto spec = MakeSpec(flags);
  if (!spec.ok()) return Report(spec.status());
  if (absl::Status status = CheckAndPut(flags, globals, *spec); !status.ok()) return Report(status);

  Connection connection(globals);
  if (flags.verify.steps > 0) {
    const int code = Verify(connection, flags.verify, globals.json(), *spec);
    if (code != kSuccess || flags.verify.only) return code;
  }
  const auto job = Send(connection, *spec, flags);
  if (!job.ok()) return Report(job.status());
  if (flags.validate_only) {
    std::cout << (globals.json() ? "{\n  \"valid\": true\n}" : "valid") << std::endl;
    return kSuccess;
  }
  if (flags.watch) return Watch(connection, job->name(), globals, {.known = true});
  if (globals.json()) {
    std::cout << JobJson(*job).dump(2) << std::endl;
  } else {
    std::cout << job->name() << std::endl;
  }
  return kSuccess;
}

// What is trained on what data, and for how long.
void AddDataFlags(CLI::App& submit, SubmitFlags& flags) {
  submit.add_option("graph", flags.graph, "graph file (.swg)")->required();
  submit
      .add_option("--weights", flags.weights,
                  "initial weights: a .safetensors file, which goes to --artifacts if that is set, "
                  "or an artifact (sha256:...)")
      ->required();
  submit.add_option("--data", flags.data, "training data (.safetensors, .npy, shards)")->required();
  submit.add_option("--eval-data", flags.evaluation_data, "data to evaluate on at the end");
  submit.add_option("--out", flags.output, "directory for checkpoints")->required();
  submit.add_flag("--overwrite", flags.overwrite,
                  "take it from another job: its checkpoints there go, its model is replaced");
  submit.add_option("--name", flags.name, "for people (default: the graph's)");
  submit.add_option("--mini-batch", flags.mini_batch, "samples per step")->required();
  submit.add_option("--steps", flags.steps, "steps to train for")->check(Positive());
  submit.add_option("--epochs", flags.epochs, "passes over the data, instead of steps")
      ->check(Positive());
}

// Where training goes on from when it did not begin or end here.
void AddResumeFlags(CLI::App& submit, SubmitFlags& flags) {
  submit.add_option("--resume", flags.resume,
                    "go on from a checkpoint, or from the newest whole one of a job's output "
                    "directory");
  submit
      .add_option("--max-restarts", flags.max_restarts,
                  "times to start again from the last checkpoint when a worker is lost")
      ->check(CLI::Range(0, std::numeric_limits<int32_t>::max()));
  AddNamedOption(
      submit, "--on-loss", flags.on_loss, kLossPolicyNames,
      "then: shrink (go on with the devices that are left), wait (for as many as it had), "
      "or fail");
  AddNamedOption(
      submit, "--grow", flags.grow, kGrowthPolicyNames,
      "when devices become free: back (to as many as it asked for or had, if that pays), free (on "
      "any, up to --devices), or none");
}

// When it gets devices, and when it gives them back.
void AddQueueFlags(CLI::App& submit, SubmitFlags& flags) {
  submit
      .add_option("--priority", flags.priority,
                  "jobs of higher priority get devices first, -1000 to 1000")
      ->check(CLI::Range(-1000, 1000))
      ->capture_default_str();
  submit.add_flag("--preemptible", flags.preemptible,
                  "it may be stopped at a checkpoint for jobs of higher priority, to go on later");
}

// By which plan, and on which devices.
void AddPlanningFlags(CLI::App& submit, const std::shared_ptr<SubmitFlags>& flags) {
  submit.add_option("--planner", flags->planner, "which planner");
  CLI::Option* plan =
      submit.add_option("--plan-file,--plan", flags->plan_file,
                        "a plan to run: by hand (docs/planners/manual.md), from -o json or --save");
  submit
      .add_flag(
          "--check-version", flags->check_version,
          "refuse a plan of plan --save if graph, devices, links or profiles are others by now")
      ->needs(plan);
  submit.add_option("--devices", flags->devices, "devices to use (default: all that are free)")
      ->check(Positive());
  AddSearchFlags(submit, {flags, &flags->plan_options});
}

}  // namespace

void AddSubmitCommand(CLI::App& app, Globals& globals) {
  auto flags = std::make_shared<SubmitFlags>();
  CLI::App* submit = app.add_subcommand("submit", "train a graph on the registered workers");
  AddDataFlags(*submit, *flags);
  AddTrainingFlags(*submit, flags->training);
  AddResumeFlags(*submit, *flags);
  submit->add_option("--seed", flags->seed, "of sample order and dropout");
  submit->add_flag("--no-shuffle", flags->no_shuffle, "keep the data's order");
  AddPlanningFlags(*submit, flags);
  AddQueueFlags(*submit, *flags);
  submit->add_option("--step-timeout", flags->step_timeout_seconds, "after which a step has hung")
      ->check(Seconds())
      ->capture_default_str();
  submit->add_option("--request-id", flags->request_id, "makes repeating the command harmless");
  AddVerifyFlags(*submit, flags->verify);
  submit
      ->add_flag("--validate-only", flags->validate_only,
                 "check the job, here and by the planner, and submit nothing")
      ->excludes("--verify");
  submit->add_flag("--watch", flags->watch, "stay and show progress");
  AddOutputOption(*submit, globals);
  submit->callback([flags, &globals] { globals.exit_code = RunSubmit(*flags, globals); });
}

}  // namespace stagewright::cli
