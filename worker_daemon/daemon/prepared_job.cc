#include "worker_daemon/daemon/prepared_job.h"

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/artifacts/artifact_name.h"
#include "common/data/sample_lengths.h"
#include "common/program/check_ids.h"
#include "common/validation/validate.h"
#include "common/wire/graph_proto.h"
#include "common/wire/strategy_proto.h"
#include "common/wire/training_proto.h"
#include "worker_daemon/checkpoint/checkpoint.h"

namespace stagewright {
namespace {

namespace fs = std::filesystem;

// Steps of the job: given, or as many mini-batches as its epochs hold.
absl::StatusOr<int64_t> TotalSteps(const std::vector<const Graph*>& graphs,
                                   const v1::JobSpec& spec) {
  if (spec.steps() > 0) return spec.steps();
  ASSIGN_OR_RETURN(const SampleLengths lengths, SampleLengths::Read(graphs, spec.data_path()));
  const auto steps = Sampler::Steps(lengths, spec.mini_batch(), spec.epochs());
  if (!steps.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("spec.epochs: ", spec.epochs(), " epochs of ",
                                                   lengths.samples(),
                                                   " samples cannot be counted"));
  }
  if (lengths.samples() < spec.mini_batch()) {
    return absl::InvalidArgumentError(absl::StrCat("mini-batch of ", spec.mini_batch(),
                                                   " samples, but ", spec.data_path(),
                                                   " holds only ", lengths.samples()));
  }
  return *steps;
}

absl::Status CheckPrograms(const DeviceJob& job, int64_t mini_batch) {
  for (const LengthSpec& length : AllLengths(job)) {
    for (const Program* program : {length.program.get(), length.evaluation.get()}) {
      if (program == nullptr) continue;
      const char* name =
          program == length.program.get() ? "prepare.program" : "prepare.evaluation_program";
      RETURN_IF_ERROR(Annotate(CheckIds(*length.graph, *program), name));
      RETURN_IF_ERROR(Annotate(Validate(*program, {}), name));
    }
  }
  if (job.program->mini_batch != mini_batch) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prepare.program.mini_batch is ", job.program->mini_batch, ", the spec's is ", mini_batch));
  }
  return absl::OkStatus();
}

absl::Status AddLengths(const v1::Prepare& prepare, DeviceJob& job) {
  ASSIGN_OR_RETURN(std::vector<Graph> graphs, LengthsFromProto(prepare.spec().graph(), *job.graph));
  if (static_cast<int>(graphs.size()) != prepare.lengths_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prepare.lengths: there are ", prepare.lengths_size(), ", the graph has ", graphs.size()));
  }
  for (int i = 0; i < prepare.lengths_size(); ++i) {
    const v1::LengthPrograms& programs = prepare.lengths(i);
    LengthSpec length;
    length.graph = std::make_shared<const Graph>(std::move(graphs[static_cast<size_t>(i)]));
    ASSIGN_OR_RETURN(Program program, FromProto(programs.program()));
    length.program = std::make_shared<const Program>(std::move(program));
    if (programs.has_evaluation_program()) {
      ASSIGN_OR_RETURN(Program evaluation, FromProto(programs.evaluation_program()));
      length.evaluation = std::make_shared<const Program>(std::move(evaluation));
    }
    job.lengths.push_back(std::move(length));
  }
  return absl::OkStatus();
}

using PathCheck = absl::Status(const PathRoots&, absl::string_view, const std::string&);

// A directory of a job and what is below it of checkpoints, any of which may be a link.
absl::Status CheckWithCheckpoints(PathCheck& check, const PathRoots& roots, absl::string_view field,
                                  const std::string& path) {
  RETURN_IF_ERROR(check(roots, field, path));
  if (path.empty() || (roots.data.empty() && roots.output.empty())) return absl::OkStatus();
  const std::string root = CheckpointRoot(path);
  RETURN_IF_ERROR(check(roots, field, root));
  for (const std::string& folder : {path, root}) {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      // Only a link leads out of a directory that lies below a root.
      std::error_code none;
      if (absl::StartsWith(it->path().filename().string(), "step-") && it->is_symlink(none))
        RETURN_IF_ERROR(check(roots, field, it->path().string()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeviceJob> JobFromPrepare(const v1::Prepare& prepare) {
  const v1::JobSpec& spec = prepare.spec();
  DeviceJob job;
  ASSIGN_OR_RETURN(Graph graph, FromProto(spec.graph()));
  job.graph = std::make_shared<const Graph>(std::move(graph));
  ASSIGN_OR_RETURN(Program program, FromProto(prepare.program()));
  job.program = std::make_shared<const Program>(std::move(program));
  ASSIGN_OR_RETURN(job.training, TrainingFromProto(spec));
  if (prepare.has_evaluation_program()) {
    ASSIGN_OR_RETURN(Program evaluation, FromProto(prepare.evaluation_program()));
    job.evaluation = std::make_shared<const Program>(std::move(evaluation));
    job.evaluation_path = spec.evaluation_data_path();
  }
  RETURN_IF_ERROR(AddLengths(prepare, job));
  job.weights_path = spec.weights_path();
  job.data_path = spec.data_path();
  job.seed = spec.seed();
  job.order = spec.no_shuffle() ? SampleOrder::kSequential : SampleOrder::kShuffled;
  job.records.steps = spec.records().steps();
  job.records.compare = !spec.records().compare_with().empty();
  job.records.output_path =
      job.records.compare ? spec.records().compare_with() : spec.output_path();
  if (spec.step_timeout_ns() > 0) job.step_timeout = absl::Nanoseconds(spec.step_timeout_ns());
  RETURN_IF_ERROR(CheckPrograms(job, spec.mini_batch()));
  std::vector<const Graph*> graphs;
  for (const LengthSpec& length : AllLengths(job)) graphs.push_back(length.graph.get());
  ASSIGN_OR_RETURN(job.steps, TotalSteps(graphs, spec));
  return job;
}

absl::Status CheckPaths(const PathRoots& roots, const v1::JobSpec& spec) {
  std::vector<std::string> inputs;
  for (const v1::Input& input : spec.graph().inputs()) inputs.push_back(input.name());
  if (!IsArtifactName(spec.weights_path()))
    RETURN_IF_ERROR(CheckReads(roots, "spec.weights_path", spec.weights_path()));
  RETURN_IF_ERROR(CheckReadsData(roots, "spec.data_path", spec.data_path(), inputs));
  RETURN_IF_ERROR(
      CheckReadsData(roots, "spec.evaluation_data_path", spec.evaluation_data_path(), inputs));
  RETURN_IF_ERROR(CheckWithCheckpoints(CheckReads, roots, "spec.resume_path", spec.resume_path()));
  RETURN_IF_ERROR(CheckReads(roots, "spec.records.compare_with", spec.records().compare_with()));
  return CheckWithCheckpoints(CheckWrites, roots, "spec.output_path", spec.output_path());
}

absl::Status CheckPaths(const PathRoots& roots, const v1::Merge& merge) {
  for (const std::string& shard : merge.shards())
    RETURN_IF_ERROR(CheckWrites(roots, "merge.shards", shard));
  return CheckWrites(roots, "merge.checkpoint_path", merge.checkpoint_path());
}

}  // namespace stagewright
