#include "worker_daemon/daemon/places/path_checks.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/artifacts/artifact_name.h"
#include "common/base/regular_file.h"
#include "common/data/data_files.h"
#include "worker_daemon/checkpoint/checkpoint.h"
#include "worker_daemon/checkpoint/output_owner.h"
#include "worker_daemon/daemon/prepared_job.h"

namespace stagewright {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostWaiting = 64;
// More shards than that tell nothing new.
constexpr size_t kMostFiles = 256;

absl::Status CheckFile(absl::string_view field, const std::string& path) {
  const auto file = OpenRegularFile(path);
  if (file.ok()) close(*file);
  return Annotate(file.status(), field);
}

absl::Status CheckWeights(const Artifacts& artifacts, const std::string& weights,
                          GivenUp given_up) {
  constexpr absl::string_view kField = "spec.weights_path";
  if (!IsArtifactName(weights)) return CheckFile(kField, weights);
  return Annotate(artifacts.Find(weights, std::move(given_up)).status(), kField);
}

absl::Status CheckData(absl::string_view field, const v1::JobSpec& spec, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::set<std::string> files;
  for (const v1::Input& input : spec.graph().inputs()) {
    const auto found = DataFilesOf(path, input.name());
    if (!found.ok()) return Annotate(found.status(), field);
    files.insert(found->begin(),
                 found->begin() + static_cast<int64_t>(std::min(found->size(), kMostFiles)));
  }
  for (const std::string& file : files) RETURN_IF_ERROR(CheckFile(field, file));
  return absl::OkStatus();
}

// The nearest directory that is there is one that a job can write to.
absl::Status CheckOutput(const std::string& path) {
  const auto cannot = [&](const auto&... why) {
    return absl::FailedPreconditionError(
        absl::StrCat("spec.output_path: cannot write to ", path, ": ", why...));
  };
  std::error_code error;
  fs::path nearest = fs::absolute(path, error);
  while (!error && !fs::exists(nearest, error)) {
    std::error_code unknown;
    if (fs::is_symlink(fs::symlink_status(nearest, unknown)))
      return cannot(nearest.string(), " is a link to what is not there");
    if (error || nearest == nearest.parent_path()) break;
    nearest = nearest.parent_path();
  }
  if (error) return cannot(error.message());
  if (!fs::is_directory(nearest, error)) return cannot(nearest.string(), " is no directory");
  if (access(nearest.c_str(), W_OK | X_OK) != 0)
    return cannot(nearest.string(), ": ", std::strerror(errno));
  return absl::OkStatus();
}

absl::Status CheckResume(const std::string& path) {
  std::error_code error;
  if (path.empty() || fs::exists(path, error)) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("spec.resume_path: ", path, ": ",
                   error ? error.message() : std::string("no such file or directory")));
}

}  // namespace

absl::Status CheckPlaces(const Places& places, const v1::CheckPaths& message, GivenUp given_up) {
  const v1::JobSpec& spec = message.spec();
  RETURN_IF_ERROR(CheckPaths(places.roots, spec));
  RETURN_IF_ERROR(CheckWeights(places.artifacts, spec.weights_path(), std::move(given_up)));
  RETURN_IF_ERROR(CheckData("spec.data_path", spec, spec.data_path()));
  RETURN_IF_ERROR(CheckData("spec.evaluation_data_path", spec, spec.evaluation_data_path()));
  RETURN_IF_ERROR(CheckResume(spec.resume_path()));
  RETURN_IF_ERROR(CheckOutput(spec.output_path()));
  RETURN_IF_ERROR(CheckNotInUse(
      spec.output_path(), {message.unfinished_runs().begin(), message.unfinished_runs().end()}));
  if (spec.overwrite() || ResumesOwn(spec.resume_path(), spec.output_path()))
    return absl::OkStatus();
  return MayTakeOutput(spec.output_path(), PathPart(message.run()));
}

PathChecks::PathChecks(Places places, Reporter report) : shared_(std::make_shared<Shared>()) {
  shared_->places = std::move(places);
  shared_->report = std::move(report);
  // What hangs in a file system cannot be waited for.
  std::thread([shared = shared_] { Loop(shared); }).detach();
}

PathChecks::~PathChecks() {
  absl::MutexLock lock(&shared_->mutex);
  shared_->closing = true;
}

void PathChecks::Add(v1::CheckPaths message) {
  absl::MutexLock lock(&shared_->mutex);
  if (shared_->waiting.size() >= kMostWaiting) shared_->waiting.pop_front();
  shared_->waiting.push_back(std::move(message));
}

void PathChecks::Loop(const std::shared_ptr<Shared>& shared) {
  while (true) {
    v1::CheckPaths message;
    {
      absl::MutexLock lock(&shared->mutex);
      shared->mutex.Await(absl::Condition(
          +[](Shared* state)
               ABSL_NO_THREAD_SAFETY_ANALYSIS { return state->closing || !state->waiting.empty(); },
          shared.get()));
      if (shared->closing) return;
      message = std::move(shared->waiting.front());
      shared->waiting.pop_front();
    }
    const absl::Status status = CheckPlaces(shared->places, message);
    v1::ConnectRequest answer;
    v1::PathsChecked* checked = answer.mutable_paths_checked();
    checked->set_job(message.job());
    checked->set_generation(message.generation());
    checked->set_code(static_cast<int32_t>(status.code()));
    checked->set_message(std::string(status.message()));
    absl::MutexLock lock(&shared->mutex);
    if (shared->closing) return;
    shared->report(std::move(answer));
  }
}

}  // namespace stagewright
