#include "clients/cli/flags/training_flags.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "clients/cli/flags/named_option.h"
#include "common/config/number_checks.h"

namespace stagewright::cli {
namespace {

absl::StatusOr<ParameterGroup> ParseGroup(const std::string& text) {
  const size_t at = text.rfind('=');
  const std::vector<std::string> numbers =
      absl::StrSplit(at == std::string::npos ? "" : text.substr(at + 1), ',');
  ParameterGroup group;
  if (at == 0 || at == std::string::npos || numbers.size() > 2 ||
      !absl::SimpleAtod(numbers[0], &group.weight_decay) ||
      (numbers.size() == 2 && !absl::SimpleAtod(numbers[1], &group.learning_rate_scale))) {
    return absl::InvalidArgumentError(
        absl::StrCat("--group \"", text, "\" is not GLOB=WEIGHT_DECAY or GLOB=WEIGHT_DECAY,SCALE"));
  }
  group.pattern = text.substr(0, at);
  return group;
}

void AddOptimizerFlags(CLI::App& submit, TrainingFlags& flags) {
  OptimizerSpec& optimizer = flags.training.optimizer;
  const CLI::Option* const kind =
      submit.add_option("--optimizer", flags.optimizer, "sgd, momentum, adam, adamw")
          ->check(CLI::IsMember(TrainableOptimizerNames()))
          ->capture_default_str();
  submit.add_option("--lr", optimizer.learning_rate, "learning rate")->required();
  const CLI::Option* const momentum =
      submit.add_option("--momentum", optimizer.momentum, "of --optimizer momentum")
          ->capture_default_str();
  submit.add_option("--weight-decay", optimizer.weight_decay, "L2 penalty; adamw: decoupled");
  const CLI::Option* const nesterov =
      submit.add_flag("--nesterov", optimizer.nesterov, "with --optimizer momentum");
  for (const CLI::Option* option : {momentum, nesterov})
    flags.belongings.push_back({option, kind, {"momentum"}});
  submit.add_option(
      "--group", flags.groups,
      "GLOB=WEIGHT_DECAY or GLOB=WEIGHT_DECAY,RATE_SCALE for parameters of that name; "
      "repeat it, the first match holds");
  submit.add_option("--clip-norm", flags.training.max_gradient_norm,
                    "scale gradients down to this norm over all parameters");
}

void AddScheduleFlags(CLI::App& submit, TrainingFlags& flags) {
  LearningRateSchedule& schedule = flags.training.optimizer.schedule;
  const CLI::Option* const decay =
      AddNamedOption(submit, "--schedule", schedule.decay, kDecayNames,
                     "of the learning rate: constant, linear, cosine, step")
          ->default_str(std::string(NameIn(kDecayNames, schedule.decay)));
  submit.add_option("--warmup", schedule.warmup_steps, "steps over which the learning rate rises");
  const auto add = [&](const char* name, auto& field, const char* help,
                       std::vector<std::string> of) {
    const std::string text = absl::StrCat(absl::StrJoin(of, ", "), ": ", help);
    flags.belongings.push_back({submit.add_option(name, field, text), decay, std::move(of)});
  };
  add("--decay-steps", schedule.decay_steps,
      "step at which the rate is at its end (default: the last)", {"linear", "cosine"});
  add("--end-factor", schedule.end_factor, "part of the rate that is left at the end (default 0)",
      {"linear", "cosine"});
  add("--decay-every", schedule.every, "after every so many steps (default 1)", {"step"});
  add("--gamma", schedule.gamma, "the rate is multiplied by this (default 0.1)", {"step"});
}

void AddEvaluationFlags(CLI::App& submit, EvaluationPolicy& policy) {
  submit.add_option("--eval-every", policy.every, "evaluate after every so many steps, too");
  submit.add_option("--patience", policy.patience,
                    "stop after so many evaluations without a better loss");
  submit.add_option("--min-delta", policy.min_delta, "by how much a better loss must be less");
}

CheckpointPolicy& PolicyOf(TrainingSpec& training) {
  if (!training.checkpoints.has_value()) training.checkpoints.emplace();
  return *training.checkpoints;
}

// Each makes the job one that saves its state.
void AddCheckpointFlags(CLI::App& submit, TrainingFlags& flags) {
  TrainingSpec& training = flags.training;
  submit
      .add_option_function<int64_t>(
          "--checkpoint-every",
          [&training](int64_t steps) { PolicyOf(training).every_steps = steps; },
          "save the state after every so many steps")
      ->check(Positive());
  submit
      .add_option("--checkpoint-minutes", flags.checkpoint_minutes,
                  "save the state after so many minutes")
      ->check(Minutes());
  submit
      .add_option_function<int32_t>(
          "--keep", [&training](int32_t count) { PolicyOf(training).keep = count; },
          "checkpoints that are kept (default 2)")
      ->check(Positive());
  submit.add_flag_callback(
      "--checkpoint-or-fail", [&training] { PolicyOf(training).fail_job = true; },
      "a checkpoint that cannot be written fails the job");
}

// Who gives one that does nothing has meant something else.
absl::Status CheckBelongings(const TrainingFlags& flags) {
  for (const auto& [option, to, choices] : flags.belongings) {
    const std::string chosen = to->count() > 0 ? to->results().back() : to->get_default_str();
    if (option->count() == 0 || std::count(choices.begin(), choices.end(), chosen) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(option->get_name(), " is of ", to->get_name(),
                                                   " ", absl::StrJoin(choices, " or "),
                                                   ", which is ", chosen));
  }
  return absl::OkStatus();
}

}  // namespace

void AddTrainingFlags(CLI::App& submit, TrainingFlags& flags) {
  AddOptimizerFlags(submit, flags);
  AddScheduleFlags(submit, flags);
  AddEvaluationFlags(submit, flags.training.evaluation);
  AddNamedOption(submit, "--on-nan", flags.training.on_non_finite, kNonFiniteNames,
                 "loss or gradients not finite: stop (default), skip the update, continue");
  AddNamedOption(
      submit, "--precision", flags.training.precision, kPrecisionNames,
      "of forward and backward passes: graph (default: its types), bf16, fp16 with a scaled loss");
  AddCheckpointFlags(submit, flags);
}

absl::StatusOr<TrainingSpec> MakeTraining(const TrainingFlags& flags) {
  RETURN_IF_ERROR(CheckBelongings(flags));
  TrainingSpec training = flags.training;
  const auto chosen = OptimizerByName(flags.optimizer);
  if (!chosen.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--optimizer \"", flags.optimizer, "\" is not known"));
  }
  training.optimizer.kind = chosen->kind;
  training.optimizer.decoupled_weight_decay = chosen->decoupled_weight_decay;
  for (const std::string& text : flags.groups) {
    ASSIGN_OR_RETURN(ParameterGroup group, ParseGroup(text));
    training.optimizer.groups.push_back(std::move(group));
  }
  if (flags.checkpoint_minutes > 0)
    PolicyOf(training).every = static_cast<Nanos>(flags.checkpoint_minutes * 60e9);
  return training;
}

}  // namespace stagewright::cli
