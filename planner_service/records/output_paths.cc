#include "planner_service/records/output_paths.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/error_details.h"

namespace stagewright {
namespace {

std::filesystem::path Normal(const std::string& text) {
  const std::filesystem::path whole = std::filesystem::path(text).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

}  // namespace

absl::Status CheckOutput(const std::map<int64_t, JobRecord>& live, const std::string& path) {
  const std::filesystem::path own = Normal(path);
  for (const auto& [number, record] : live) {
    const Job& job = record.job;
    if (IsTerminal(job.state) || Normal(job.spec->output_path()) != own) continue;
    const absl::Status taken = absl::FailedPreconditionError(
        absl::StrCat("spec.output_path \"", path, "\" is that of ", job.name(),
                     ", which has not ended; each would overwrite the other's files"));
    return WithResource(WithReason(WithField(taken, "spec.output_path"), "OUTPUT_IN_USE"),
                        job.name());
  }
  return absl::OkStatus();
}

std::vector<std::string> UnfinishedRuns(const std::map<int64_t, JobRecord>& live, int64_t but_for) {
  std::vector<std::string> runs;
  for (const auto& [number, record] : live) {
    const Job& job = record.job;
    if (number != but_for && job.generation > 0 && !IsTerminal(job.state))
      runs.push_back(RunName(job));
  }
  return runs;
}

}  // namespace stagewright
