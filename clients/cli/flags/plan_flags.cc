#include "clients/cli/flags/plan_flags.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "clients/cli/flags/named_option.h"
#include "common/config/number_checks.h"
#include "common/topology/presets.h"
#include "common/topology/uniform.h"
#include "common/wire/strategy_proto.h"
#include "common/wire/topology_proto.h"
#include "common/wire/training_proto.h"

namespace stagewright::cli {
namespace {

// Presets travel by name: spelt out, a link for each pair of a thousand devices takes a gigabyte.
bool IsPreset(const std::string& cluster) {
  const std::string base = cluster.substr(0, cluster.find(':'));
  const auto presets = ClusterPresets();
  return std::any_of(presets.begin(), presets.end(),
                     [&](const auto& preset) { return preset.first == base; });
}

absl::StatusOr<Cluster> ClusterOf(const ProblemFlags& flags, const SourceGraph& source) {
  if (!flags.cluster.empty()) return LoadCluster(flags.cluster);
  if (!source.piper.has_value()) throw CLI::RequiredError("--cluster");
  UniformSpec spec;
  spec.name = "as the profile says";
  spec.devices_per_node = source.piper->max_devices;
  spec.memory = source.piper->memory_per_device;
  spec.inside = spec.outside = {"", 0, source.piper->bytes_per_second};
  auto cluster = MakeUniform(spec);
  if (!cluster.ok()) return Annotate(cluster.status(), flags.source.path);
  return cluster;
}

}  // namespace

void AddProblemFlags(CLI::App& command, ProblemFlags& flags) {
  AddGraphSource(command, flags.source);
  command.add_option("--cluster", flags.cluster,
                     "preset with its size (summit:8, uniform:8), or a cluster file");
  command.add_option("--mini-batch", flags.mini_batch, "samples per training step")
      ->check(Positive());
  AddNamedOption(command, "--optimizer", flags.optimizer, kOptimizerNames,
                 "whose state is counted: sgd, momentum, adam")
      ->default_str(std::string(NameIn(kOptimizerNames, flags.optimizer)));
  AddNamedOption(command, "--precision", flags.precision, kPrecisionNames,
                 "in which passes compute, as in training: graph (default: its types), bf16, fp16");
}

void AddSearchFlags(CLI::App& command, std::shared_ptr<v1::PlanOptions> options) {
  const auto number = [&command](const char* name, auto set, const char* help) {
    command.add_option_function<int64_t>(name, set, help)->check(Positive());
  };
  const auto count = [&command](const char* name, auto set, const char* help) {
    command.add_option_function<int32_t>(name, set, help)->check(Positive());
  };
  const auto flag = [&command](const char* name, auto set, const char* help) {
    command.add_flag_callback(name, set, help);
  };
  number(
      "--micro-batch", [options](int64_t n) { options->set_micro_batch(n); },
      "one micro-batch size for all stages");
  count(
      "--stages", [options](int32_t n) { options->set_num_stages(n); }, "exactly this many stages");
  count(
      "--max-stages", [options](int32_t n) { options->set_max_stages(n); },
      "at most this many stages");
  flag(
      "--no-replicas", [options] { options->set_forbid_replicas(true); },
      "no data-parallel stages");
  flag(
      "--per-stage-micro-batch", [options] { options->set_per_stage_micro_batch(true); },
      "each stage may have its own micro-batch size");
  count(
      "--max-k", [options](int32_t n) { options->set_max_k(n); },
      "kFkB schedules up to this k (default 1)");
  const std::map<std::string, v1::RecomputePolicy> policies = {
      {"allowed", v1::RECOMPUTE_POLICY_ALLOWED},
      {"never", v1::RECOMPUTE_POLICY_NEVER},
      {"always", v1::RECOMPUTE_POLICY_ALWAYS}};
  command
      .add_option_function<std::string>(
          "--recompute",
          [options, policies](const std::string& name) {
            options->set_recompute(policies.at(name));
          },
          "whether stages may run forward passes again: allowed (default), never, always")
      ->check(CLI::IsMember({"allowed", "never", "always"}));
  const std::map<std::string, v1::BatchStatistics> statistics = {
      {"whole", v1::BATCH_STATISTICS_WHOLE},
      {"micro", v1::BATCH_STATISTICS_MICRO},
      {"synchronised", v1::BATCH_STATISTICS_SYNCHRONISED}};
  command
      .add_option_function<std::string>(
          "--batch-statistics",
          [options, statistics](const std::string& name) {
            options->set_batch_statistics(statistics.at(name));
          },
          "over what batch normalisation takes its statistics: whole (the mini-batch, default), "
          "micro (what a device has of a micro-batch), synchronised (the mini-batch, where one "
          "device has it)")
      ->check(CLI::IsMember({"whole", "micro", "synchronised"}));
  const std::map<std::string, v1::OptimizerSharding> shardings = {
      {"none", v1::OPTIMIZER_SHARDING_NONE},
      {"states", v1::OPTIMIZER_SHARDING_STATES},
      {"gradients", v1::OPTIMIZER_SHARDING_GRADIENTS},
      {"auto", v1::OPTIMIZER_SHARDING_AUTO}};
  command
      .add_option_function<std::string>(
          "--shard-optimizer",
          [options, shardings](const std::string& name) {
            options->set_optimizer_sharding(shardings.at(name));
          },
          "how the replicas of a stage keep the optimizer's state: none (each all of it, default), "
          "states (each that of its share of the parameters: ZeRO-1), gradients (between "
          "micro-batches the gradients, too: ZeRO-2), auto (whichever is faster, or fits)")
      ->check(CLI::IsMember({"none", "states", "gradients", "auto"}));
  number(
      "--bucket-bytes", [options](int64_t n) { options->set_bucket_bytes(n); },
      "about so many bytes of a stage's gradients are summed over its replicas at a time (default: "
      "what suits the links)");
  count(
      "--max-loops", [options](int32_t n) { options->set_max_loops(n); },
      "at most this many stages a device; 1 forbids loops");
  count(
      "--effort", [options](int32_t n) { options->set_effort(n); },
      "so many times the search that auto does by itself (default 1)");
  flag(
      "--no-split-backward", [options] { options->set_forbid_split_backward(true); },
      "schedules do not split the backward pass");
  flag(
      "--sequential", [options] { options->set_sequential(true); }, "only sequential strategies");
  flag(
      "--asynchronous", [options] { options->set_asynchronous(true); },
      "asynchronous 1F1B with weight stashing, from planners that have it");
  command
      .add_option_function<std::string>(
          "--split-operators",
          [options](const std::string& text) {
            if (text == "auto") return;
            if (text == "off") return options->set_split_policy(v1::SPLIT_POLICY_OFF);
            const auto splits = ParseOperatorSplits(text);
            if (!splits.ok())
              throw CLI::ValidationError("--split-operators",
                                         std::string(splits.status().message()));
            for (const OperatorSplit& split : *splits) *options->add_splits() = ToProto(split);
          },
          "operators cut in parallel parts: auto (planner auto tries those that bind, default), "
          "off, or NAME=PARTS[,NAME=PARTS]")
      ->type_name("auto|off|NAME=PARTS,...");
  flag(
      "--vertical-sync", [options] { options->set_vertical_sync(true); },
      "with --asynchronous: all stages use the same version of the weights for a micro-batch");
}

absl::StatusOr<v1::PlanningProblem> MakeProblem(const ProblemFlags& flags,
                                                std::vector<std::string>& warnings) {
  if (flags.source.path.empty()) throw CLI::RequiredError("graph");
  if (flags.cluster.empty() && flags.source.from != "piper") throw CLI::RequiredError("--cluster");
  if (!flags.mini_batch && flags.source.from != "piper") throw CLI::RequiredError("--mini-batch");
  ASSIGN_OR_RETURN(SourceGraph source, LoadSource(flags.source));
  v1::PlanningProblem problem;
  if (IsPreset(flags.cluster)) {
    problem.set_cluster_preset(flags.cluster);
  } else {
    ASSIGN_OR_RETURN(const Cluster cluster, ClusterOf(flags, source));
    *problem.mutable_cluster() = ToProto(cluster);
  }
  *problem.mutable_graph() = std::move(source.graph);
  problem.set_optimizer(ToProto(flags.optimizer));
  problem.set_precision(ToProto(flags.precision));
  const int64_t samples = std::clamp<int64_t>(flags.source.import.profile_batch, 1, 1 << 30);
  problem.set_mini_batch(flags.mini_batch ? *flags.mini_batch
                                          : source.piper->micro_batches * samples);
  warnings = std::move(source.warnings);
  return problem;
}

}  // namespace stagewright::cli
