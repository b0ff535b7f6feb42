// `stagewright submit`, `jobs`, `watch`, `cancel`, `workers`, `trace`.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "clients/cli/commands.h"
#include "clients/cli/connection.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/file_check.h"
#include "clients/cli/files.h"
#include "clients/cli/follow.h"
#include "clients/cli/job_view.h"
#include "clients/cli/number_checks.h"
#include "clients/cli/plan_file.h"
#include "clients/cli/plan_flags.h"
#include "clients/cli/verify.h"
#include "common/program/trace.h"
#include "common/wire/graph_file.h"
#include "common/wire/graph_proto.h"
#include "common/wire/job_state.h"
#include "common/wire/strategy_proto.h"

namespace stagewright::cli {
namespace {

constexpr absl::Duration kCallDeadline = absl::Seconds(30);

struct SubmitFlags {
  std::string graph;
  std::string optimizer = "adam";
  double momentum = 0.9;
  std::string schedule = "constant";
  std::vector<std::string> groups;
  std::string plan_file;
  std::string request_id;
  double step_timeout_seconds = 60;
  double checkpoint_minutes = 0;
  v1::JobSpec spec;
  VerifyFlags verify;
  bool watch = false;
};

int Watch(Connection& connection, const std::string& name, const Globals& globals) {
  const absl::StatusOr<v1::Job> job = Follow(connection, name);
  if (!job.ok()) return Report(job.status());
  if (globals.json()) {
    std::cout << JobJson(*job).dump(2) << std::endl;
  } else {
    std::cout << JobSummary(*job);
  }
  return job->state() == v1::JOB_STATE_SUCCEEDED ? kSuccess : kJobNotWell;
}

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

// "GLOB=DECAY" or "GLOB=DECAY,SCALE".
absl::Status AddGroup(const std::string& text, v1::OptimizerConfig* optimizer) {
  const size_t at = text.rfind('=');
  const std::vector<std::string> numbers =
      absl::StrSplit(at == std::string::npos ? "" : text.substr(at + 1), ',');
  double decay = 0;
  double scale = 1;
  if (at == 0 || at == std::string::npos || numbers.size() > 2 ||
      !absl::SimpleAtod(numbers[0], &decay) ||
      (numbers.size() == 2 && !absl::SimpleAtod(numbers[1], &scale))) {
    return absl::InvalidArgumentError(
        absl::StrCat("--group \"", text, "\" is not GLOB=WEIGHT_DECAY or GLOB=WEIGHT_DECAY,SCALE"));
  }
  v1::ParameterGroup* group = optimizer->add_groups();
  group->set_pattern(text.substr(0, at));
  group->set_weight_decay(decay);
  group->set_learning_rate_scale(scale);
  return absl::OkStatus();
}

absl::Status FinishOptimizer(const SubmitFlags& flags, v1::OptimizerConfig* optimizer) {
  const bool adamw = flags.optimizer == "adamw";
  optimizer->set_kind(OptimizerByName(adamw ? "adam" : flags.optimizer));
  optimizer->set_decoupled_weight_decay(adamw);
  optimizer->set_momentum(flags.momentum);
  optimizer->mutable_schedule()->set_decay(
      flags.schedule == "linear"   ? v1::LEARNING_RATE_DECAY_LINEAR
      : flags.schedule == "cosine" ? v1::LEARNING_RATE_DECAY_COSINE
      : flags.schedule == "step"   ? v1::LEARNING_RATE_DECAY_STEP
                                   : v1::LEARNING_RATE_DECAY_CONSTANT);
  for (const std::string& group : flags.groups) RETURN_IF_ERROR(AddGroup(group, optimizer));
  return absl::OkStatus();
}

int RunSubmit(SubmitFlags& flags, const Globals& globals) {
  v1::JobSpec& spec = flags.spec;
  auto graph = ReadGraphProto(flags.graph);
  if (!graph.ok()) return Report(graph.status());
  if (spec.display_name().empty()) spec.set_display_name(graph->name());
  *spec.mutable_graph() = *std::move(graph);
  spec.set_weights_path(Absolute(spec.weights_path()));
  spec.set_data_path(AbsoluteData(spec.data_path()));
  spec.set_evaluation_data_path(AbsoluteData(spec.evaluation_data_path()));
  spec.set_resume_path(Absolute(spec.resume_path()));
  if (flags.checkpoint_minutes > 0) {
    spec.mutable_checkpoints()->set_every_ns(static_cast<int64_t>(flags.checkpoint_minutes * 60e9));
  }
  spec.set_output_path(Absolute(spec.output_path()));
  if (absl::Status status = FinishOptimizer(flags, spec.mutable_optimizer()); !status.ok())
    return Report(status);
  spec.set_step_timeout_ns(static_cast<int64_t>(flags.step_timeout_seconds * 1e9));
  if (!flags.plan_file.empty()) {
    auto plan = ReadPlanFile(flags.plan_file);
    if (!plan.ok()) return Report(plan.status());
    *spec.mutable_plan_options()->mutable_manual() = *std::move(plan);
    if (spec.planner().empty()) spec.set_planner("manual");
  }
  const auto checked = FromProto(spec.graph());
  if (!checked.ok()) return Report(Annotate(checked.status(), flags.graph));
  if (absl::Status status = CheckFiles(*checked, spec); !status.ok()) return Report(status);

  Connection connection(globals.planner_address);
  if (flags.verify.steps > 0) {
    const int code = Verify(connection, flags.verify, globals.json(), spec);
    if (code != kSuccess || flags.verify.only) return code;
  }
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(flags.request_id.empty() ? FreshId() : flags.request_id);
  v1::SubmitJobResponse response;
  absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().SubmitJob(context, request, &response);
  });
  if (!status.ok()) return Report(status);
  if (flags.watch) return Watch(connection, response.job().name(), globals);
  if (globals.json()) {
    std::cout << JobJson(response.job()).dump(2) << std::endl;
  } else {
    std::cout << response.job().name() << std::endl;
  }
  return kSuccess;
}

int RunJobs(const Globals& globals) {
  Connection connection(globals.planner_address);
  v1::ListJobsResponse all;
  std::string token;
  do {
    v1::ListJobsRequest request;
    request.set_page_size(200);
    request.set_page_token(token);
    v1::ListJobsResponse page;
    absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
      return connection.jobs().ListJobs(context, request, &page);
    });
    if (!status.ok()) return Report(status);
    token = page.next_page_token();
    all.mutable_jobs()->MergeFrom(page.jobs());
  } while (!token.empty());
  if (globals.json()) {
    nlohmann::json list = nlohmann::json::array();
    for (const v1::Job& job : all.jobs()) list.push_back(JobJson(job));
    std::cout << nlohmann::json({{"jobs", std::move(list)}}).dump(2) << std::endl;
  } else {
    std::cout << JobsText(all);
  }
  return kSuccess;
}

int RunCancel(const std::string& name, const Globals& globals) {
  Connection connection(globals.planner_address);
  v1::CancelJobRequest request;
  request.set_name(name);
  v1::CancelJobResponse response;
  absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().CancelJob(context, request, &response);
  });
  if (!status.ok()) return Report(status);
  std::cout << response.job().name() << " " << JobStateName(response.job().state()) << std::endl;
  return kSuccess;
}

int RunWorkers(const Globals& globals) {
  Connection connection(globals.planner_address);
  v1::ListWorkersResponse response;
  absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().ListWorkers(context, v1::ListWorkersRequest(), &response);
  });
  if (!status.ok()) return Report(status);
  if (globals.json()) {
    std::cout << WorkersJson(response).dump(2) << std::endl;
  } else {
    std::cout << WorkersText(response);
  }
  return kSuccess;
}

template <typename Events>
absl::StatusOr<std::vector<TraceEvent>> Convert(const Events& protos) {
  std::vector<TraceEvent> events;
  for (const auto& proto : protos) {
    ASSIGN_OR_RETURN(TraceEvent event, FromProto(proto));
    events.push_back(event);
  }
  return events;
}

// One recorded step, its times counted from its first action.
std::vector<TraceEvent> LastStep(const std::vector<TraceEvent>& events) {
  int32_t last = 0;
  for (const TraceEvent& event : events) last = std::max(last, event.step);
  std::vector<TraceEvent> step;
  Nanos origin = std::numeric_limits<Nanos>::max();
  for (const TraceEvent& event : events) {
    if (event.step != last) continue;
    step.push_back(event);
    origin = std::min(origin, event.start);
  }
  for (TraceEvent& event : step) {
    event.start -= origin;
    event.end -= origin;
  }
  return step;
}

int RunTrace(const std::string& name, const std::string& path, const Globals& globals) {
  Connection connection(globals.planner_address);
  v1::GetJobTraceRequest request;
  request.set_name(name);
  v1::GetJobTraceResponse response;
  absl::Status status = connection.Call(kCallDeadline, [&](grpc::ClientContext* context) {
    return connection.jobs().GetJobTrace(context, request, &response);
  });
  if (!status.ok()) return Report(status);
  auto measured = Convert(response.measured());
  auto predicted = Convert(response.predicted());
  if (!measured.ok() || !predicted.ok())
    return Report(measured.ok() ? predicted.status() : measured.status());
  const std::vector<std::string> devices(response.devices().begin(), response.devices().end());
  status = WriteFile(
      path, ChromeTrace({{"predicted", *predicted}, {"measured", LastStep(*measured)}}, devices));
  if (!status.ok()) return Report(status);
  std::cout << path << std::endl;
  return kSuccess;
}

// How the optimizer steps, beyond its constants, and when evaluations happen.
void AddTrainingOptions(CLI::App& submit, const std::shared_ptr<SubmitFlags>& flags) {
  v1::JobSpec* spec = &flags->spec;
  v1::OptimizerConfig* optimizer = spec->mutable_optimizer();
  v1::LearningRateSchedule* schedule = optimizer->mutable_schedule();
  schedule->set_every(1);
  schedule->set_gamma(0.1);
  const auto integer = [&](const char* name, const char* help, auto set) {
    submit.add_option_function<int64_t>(
        name, [flags, set](int64_t value) { set(value); }, help);
  };
  const auto real = [&](const char* name, const char* help, auto set) {
    submit.add_option_function<double>(
        name, [flags, set](double value) { set(value); }, help);
  };
  submit.add_flag_callback(
      "--nesterov", [flags, optimizer] { optimizer->set_nesterov(true); },
      "with --optimizer momentum");
  submit.add_option(
      "--group", flags->groups,
      "GLOB=WEIGHT_DECAY or GLOB=WEIGHT_DECAY,RATE_SCALE for parameters of that name; "
      "repeat it, the first match holds");
  real("--clip-norm", "scale gradients down to this norm over all parameters",
       [optimizer](double v) { optimizer->set_max_gradient_norm(v); });
  submit
      .add_option("--schedule", flags->schedule,
                  "of the learning rate: constant, linear, cosine, step")
      ->check(CLI::IsMember({"constant", "linear", "cosine", "step"}))
      ->capture_default_str();
  integer("--warmup", "steps over which the learning rate rises",
          [schedule](int64_t v) { schedule->set_warmup_steps(v); });
  integer("--decay-steps",
          "linear, cosine: step at which the rate is at its end (default: the last)",
          [schedule](int64_t v) { schedule->set_decay_steps(v); });
  real("--end-factor", "linear, cosine: part of the rate that is left at the end (default 0)",
       [schedule](double v) { schedule->set_end_factor(v); });
  integer("--decay-every", "step: after every so many steps (default 1)",
          [schedule](int64_t v) { schedule->set_every(v); });
  real("--gamma", "step: the rate is multiplied by this (default 0.1)",
       [schedule](double v) { schedule->set_gamma(v); });
  integer("--eval-every", "evaluate after every so many steps, too",
          [spec](int64_t v) { spec->set_evaluate_every(v); });
  integer("--patience", "stop after so many evaluations without a better loss",
          [spec](int64_t v) { spec->set_patience(v); });
  real("--min-delta", "by how much a better loss must be less",
       [spec](double v) { spec->set_min_delta(v); });
}

// When state is saved, and where training goes on from.
void AddCheckpointOptions(CLI::App& submit, const std::shared_ptr<SubmitFlags>& flags) {
  v1::JobSpec* spec = &flags->spec;
  submit
      .add_option_function<int64_t>(
          "--checkpoint-every",
          [flags, spec](int64_t v) { spec->mutable_checkpoints()->set_every_steps(v); },
          "save the state after every so many steps")
      ->check(Positive());
  submit
      .add_option("--checkpoint-minutes", flags->checkpoint_minutes,
                  "save the state after so many minutes")
      ->check(CLI::PositiveNumber);
  submit
      .add_option_function<int32_t>(
          "--keep", [flags, spec](int32_t v) { spec->mutable_checkpoints()->set_keep(v); },
          "checkpoints that are kept (default 2)")
      ->check(Positive());
  submit.add_flag_callback(
      "--checkpoint-or-fail", [flags, spec] { spec->mutable_checkpoints()->set_fail_job(true); },
      "a checkpoint that cannot be written fails the job");
  submit.add_option_function<std::string>(
      "--resume", [flags, spec](const std::string& v) { spec->set_resume_path(v); },
      "go on from a checkpoint, or from the newest whole one of a job's output directory");
  submit
      .add_option_function<int32_t>(
          "--max-restarts", [flags, spec](int32_t v) { spec->set_max_restarts(v); },
          "times to start again from the last checkpoint when a worker is lost")
      ->check(CLI::NonNegativeNumber);
}

void AddSubmit(CLI::App& app, Globals& globals) {
  auto flags = std::make_shared<SubmitFlags>();
  v1::JobSpec* spec = &flags->spec;
  v1::OptimizerConfig* optimizer = spec->mutable_optimizer();
  optimizer->set_beta1(0.9);
  optimizer->set_beta2(0.999);
  optimizer->set_epsilon(1e-8);
  CLI::App* submit = app.add_subcommand("submit", "train a graph on the registered workers");
  // Protobuf fields have setters, not addresses: each option is a function.
  auto text = [&](const char* name, const char* help, auto set) {
    return submit->add_option_function<std::string>(
        name, [set](const std::string& value) { set(value); }, help);
  };
  auto integer = [&](const char* name, const char* help, auto set) {
    return submit->add_option_function<int64_t>(
        name, [set](int64_t value) { set(value); }, help);
  };
  auto count = [&](const char* name, const char* help, auto set) {
    submit
        ->add_option_function<int32_t>(
            name, [set](int32_t value) { set(value); }, help)
        ->check(Positive());
  };
  auto real = [&](const char* name, const char* help, auto set) {
    return submit->add_option_function<double>(
        name, [set](double value) { set(value); }, help);
  };
  submit->add_option("graph", flags->graph, "graph file (.swg)")->required();
  text("--weights", "initial weights (.safetensors)", [flags, spec](const std::string& v) {
    spec->set_weights_path(v);
  })->required();
  text("--data", "training data (.safetensors, .npy, shards)", [flags, spec](const std::string& v) {
    spec->set_data_path(v);
  })->required();
  text("--eval-data", "data to evaluate on at the end",
       [flags, spec](const std::string& v) { spec->set_evaluation_data_path(v); });
  text("--out", "directory for checkpoints", [flags, spec](const std::string& v) {
    spec->set_output_path(v);
  })->required();
  text("--name", "for people (default: the graph's)",
       [flags, spec](const std::string& v) { spec->set_display_name(v); });
  integer("--mini-batch", "samples per step", [flags, spec](int64_t v) {
    spec->set_mini_batch(v);
  })->required();
  integer("--steps", "steps to train for", [flags, spec](int64_t v) {
    spec->set_steps(v);
  })->check(Positive());
  integer("--epochs", "passes over the data, instead of steps", [flags, spec](int64_t v) {
    spec->set_epochs(v);
  })->check(Positive());
  submit->add_option("--optimizer", flags->optimizer, "sgd, momentum, adam, adamw")
      ->check(CLI::IsMember({"sgd", "momentum", "adam", "adamw"}))
      ->capture_default_str();
  real("--lr", "learning rate", [flags, optimizer](double v) {
    optimizer->set_learning_rate(v);
  })->required();
  submit->add_option("--momentum", flags->momentum, "of --optimizer momentum")
      ->capture_default_str();
  real("--weight-decay", "L2 penalty; adamw: decoupled",
       [flags, optimizer](double v) { optimizer->set_weight_decay(v); });
  AddTrainingOptions(*submit, flags);
  text("--on-nan", "loss or gradients not finite: stop (default), skip the update, continue",
       [flags, spec](const std::string& v) {
         spec->set_on_nan(v == "skip"       ? v1::NAN_POLICY_SKIP
                          : v == "continue" ? v1::NAN_POLICY_CONTINUE
                                            : v1::NAN_POLICY_STOP);
       })
      ->check(CLI::IsMember({"stop", "skip", "continue"}));
  text("--precision",
       "of forward and backward passes: graph (default: its types), bf16, fp16 with a scaled loss",
       [flags, spec](const std::string& v) {
         spec->set_precision(v == "bf16"   ? v1::PRECISION_BF16
                             : v == "fp16" ? v1::PRECISION_FP16
                                           : v1::PRECISION_GRAPH);
       })
      ->check(CLI::IsMember({"graph", "bf16", "fp16"}));
  AddCheckpointOptions(*submit, flags);
  integer("--seed", "of sample order and dropout",
          [flags, spec](int64_t v) { spec->set_seed(static_cast<uint64_t>(v)); });
  submit->add_flag_callback(
      "--no-shuffle", [flags, spec] { spec->set_no_shuffle(true); }, "keep the data's order");
  text("--planner", "which planner", [flags, spec](const std::string& v) { spec->set_planner(v); });
  submit->add_option("--plan-file", flags->plan_file,
                     "a plan to run: by hand (docs/planners/manual.md), from -o json or --save");
  count("--devices", "devices to use (default: all that are free)",
        [flags, spec](int32_t v) { spec->set_num_devices(v); });
  AddSearchFlags(*submit, {flags, spec->mutable_plan_options()});
  submit->add_option("--step-timeout", flags->step_timeout_seconds, "after which a step has hung")
      ->check(Seconds())
      ->capture_default_str();
  submit->add_option("--request-id", flags->request_id, "makes repeating the command harmless");
  AddVerifyFlags(*submit, flags->verify);
  submit->add_flag("--watch", flags->watch, "stay and show progress");
  AddOutputOption(*submit, globals);
  submit->callback([flags, &globals] { globals.exit_code = RunSubmit(*flags, globals); });
}

}  // namespace

void AddJobCommands(CLI::App& app, Globals& globals) {
  AddSubmit(app, globals);

  CLI::App* jobs = app.add_subcommand("jobs", "list jobs, newest first");
  AddOutputOption(*jobs, globals);
  AddLossesCommand(*jobs, globals);
  jobs->callback([jobs, &globals] {
    if (jobs->get_subcommands().empty()) globals.exit_code = RunJobs(globals);
  });

  auto name = std::make_shared<std::string>();
  CLI::App* watch = app.add_subcommand("watch", "follow a job to its end");
  watch->add_option("job", *name, "jobs/7")->required();
  AddOutputOption(*watch, globals);
  watch->callback([name, &globals] {
    Connection connection(globals.planner_address);
    globals.exit_code = Watch(connection, *name, globals);
  });

  CLI::App* cancel = app.add_subcommand("cancel", "end a job");
  cancel->add_option("job", *name, "jobs/7")->required();
  cancel->callback([name, &globals] { globals.exit_code = RunCancel(*name, globals); });

  CLI::App* workers = app.add_subcommand("workers", "list workers and their devices");
  AddOutputOption(*workers, globals);
  workers->callback([&globals] { globals.exit_code = RunWorkers(globals); });

  auto path = std::make_shared<std::string>("trace.json");
  CLI::App* trace = app.add_subcommand(
      "trace", "write a job's predicted and measured timelines as one Chrome trace");
  trace->add_option("job", *name, "jobs/7")->required();
  trace->add_option("--file", *path, "where to write it")->capture_default_str();
  trace->callback([name, path, &globals] { globals.exit_code = RunTrace(*name, *path, globals); });
}

}  // namespace stagewright::cli
