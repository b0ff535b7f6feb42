#include "worker_daemon/checkpoint/output_owner.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/atomic_file.h"
#include "common/base/regular_file.h"
#include "worker_daemon/checkpoint/checkpoint.h"
#include "worker_daemon/checkpoint/own_files.h"
#include "worker_daemon/checkpoint/shards.h"

namespace stagewright {
namespace {

namespace fs = std::filesystem;

constexpr char kFormat[] = "stagewright-output";
constexpr char kModel[] = "model.safetensors";
constexpr char kShards[] = "shards-";
constexpr size_t kLargest = size_t{64} << 10;

std::string OwnerPath(const std::string& output_path) {
  return (fs::path(output_path) / kOwnerName).string();
}

std::string Named(const OutputOwner& owner) {
  return absl::StrCat("job \"", owner.name, "\" (", owner.job, ", run ", owner.run, ")");
}

// That can be seen now.
std::vector<fs::path> ShardDirectories(const std::string& output_path) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(output_path, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code unknown;
    if (absl::StartsWith(it->path().filename().string(), kShards) && it->is_directory(unknown))
      found.push_back(it->path());
  }
  return found;
}

bool HasShards(const std::string& output_path) {
  const std::vector<fs::path> directories = ShardDirectories(output_path);
  return std::any_of(directories.begin(), directories.end(), [](const fs::path& directory) {
    std::error_code unknown;
    return !fs::is_empty(directory, unknown) && !unknown;
  });
}

// Whether a directory of that name is of a generation before this one of the run; nothing if it is
// of another run.
std::optional<bool> IsOfEarlier(absl::string_view name, const std::string& run,
                                int64_t generation) {
  int64_t found = 0;
  if (!absl::ConsumePrefix(&name, absl::StrCat(kShards, run, "-")) ||
      !absl::SimpleAtoi(name, &found))
    return std::nullopt;
  return found < generation;
}

bool IsShard(absl::string_view name) { return IsFileOfDevice(name, kShardPrefix); }

}  // namespace

std::string PathPart(const std::string& text) {
  std::string part = text;
  std::replace_if(
      part.begin(), part.end(),
      [](char c) { return !absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_'; }, '-');
  return part;
}

absl::StatusOr<std::optional<OutputOwner>> ReadOwner(const std::string& output_path) {
  const std::string path = OwnerPath(output_path);
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kLargest);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  RETURN_IF_ERROR(text.status());
  try {
    const nlohmann::json json = nlohmann::json::parse(*text);
    if (json.at("format") != kFormat) throw std::invalid_argument("it is of another format");
    const int64_t generation = json.contains("generation") ? json["generation"].get<int64_t>() : 0;
    return OutputOwner{json.at("run"), json.at("job"), json.at("name"), generation};
  } catch (const std::exception& error) {
    return absl::DataLossError(absl::StrCat(path, ": ", error.what()));
  }
}

bool HoldsResults(const std::string& output_path) {
  std::error_code error;
  return HasCheckpoints(output_path) || fs::exists(fs::path(output_path) / kModel, error) ||
         HasShards(output_path);
}

absl::Status MayTakeOutput(const std::string& output_path, const std::string& run) {
  const auto owner = ReadOwner(output_path);
  if (owner.ok() && owner->has_value() && (*owner)->run == run) return absl::OkStatus();
  if (!HoldsResults(output_path)) return absl::OkStatus();
  const std::string whose = owner.ok() && owner->has_value() ? Named(**owner) : "an earlier job";
  return absl::FailedPreconditionError(
      absl::StrCat("spec.output_path: ", output_path, " holds a checkpoint or model of ", whose,
                   ": resume from there, choose another directory, or overwrite it (--overwrite)"));
}

absl::Status CheckNotInUse(const std::string& output_path,
                           const std::vector<std::string>& unfinished) {
  if (unfinished.empty()) return absl::OkStatus();
  const auto owner = ReadOwner(output_path);
  const bool in_use = owner.ok() && owner->has_value() &&
                      std::any_of(unfinished.begin(), unfinished.end(),
                                  [&](const auto& run) { return PathPart(run) == (*owner)->run; });
  if (!in_use) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("spec.output_path: ", output_path, " is that of ", Named(**owner),
                   ", which has not ended; each would overwrite the other's files"));
}

absl::Status TakeOutput(const std::string& output_path, const OutputOwner& owner,
                        OthersResults others) {
  const auto before = ReadOwner(output_path);
  const bool own = before.ok() && before->has_value() && (*before)->run == owner.run;
  // Whichever was prepared last counts: a planner whose state is an older one counts from there.
  if (own && (*before)->generation == owner.generation) return absl::OkStatus();
  RETURN_IF_ERROR(Annotate(MakeDirectories(output_path), "spec.output_path"));
  if (others == OthersResults::kCleared && !own) {
    // Before the file: whoever finds that written may rely on it.
    const auto taken = [&] {
      const auto now = ReadOwner(output_path);
      return now.ok() && now->has_value() && (*now)->run == owner.run;
    };
    const std::vector<std::string> left =
        ClearCheckpoints(CheckpointRoot(output_path), owner.run, taken);
    if (!left.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("spec.overwrite: cannot remove ", absl::StrJoin(left, "; ")));
    }
  }
  // Preparing may have taken minutes since somebody asked first.
  if (others == OthersResults::kRefused) RETURN_IF_ERROR(MayTakeOutput(output_path, owner.run));
  const nlohmann::ordered_json json = {{"format", kFormat},
                                       {"run", owner.run},
                                       {"job", owner.job},
                                       {"name", owner.name},
                                       {"generation", owner.generation}};
  const std::string text =
      json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  RETURN_IF_ERROR(WriteAtomically(OwnerPath(output_path), {std::as_bytes(std::span(text))}));
  return CheckOwned(output_path, owner.run, owner.generation);
}

std::string ShardDirectory(const std::string& output_path, const std::string& run,
                           int64_t generation) {
  return (fs::path(output_path) / absl::StrCat(kShards, run, "-", generation)).string();
}

std::vector<std::string> DropShards(const std::string& output_path, const std::string& run,
                                    int64_t generation, bool others, const std::string& weights) {
  // Not CheckOwned: a planner whose state is an older one may count from a lower number.
  const auto is_owner = [&] {
    const auto owner = ReadOwner(output_path);
    return owner.ok() && owner->has_value() && (*owner)->run == run &&
           (*owner)->generation == generation;
  };
  std::vector<std::string> left;
  for (const fs::path& directory : ShardDirectories(output_path)) {
    const auto earlier = IsOfEarlier(directory.filename().string(), run, generation);
    std::error_code unknown;
    if (!earlier.value_or(others &&
                          !fs::equivalent(directory, fs::path(weights).parent_path(), unknown)))
      continue;
    if (!is_owner()) break;
    if (const std::error_code error = RemoveOurs(directory.string(), IsShard); error)
      left.push_back(absl::StrCat(directory.string(), ": ", error.message()));
  }
  return left;
}

absl::Status CheckOwned(const std::string& output_path, const std::string& run,
                        int64_t generation) {
  ASSIGN_OR_RETURN(const std::optional<OutputOwner> owner, ReadOwner(output_path));
  if (owner.has_value() && owner->run == run) {
    if (owner->generation <= generation) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(output_path, " is generation ", owner->generation,
                     "'s of this job, and this is generation ", generation));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(output_path, " is not this job's any more: ",
                   owner.has_value() ? absl::StrCat(Named(*owner), " has taken it")
                                     : absl::StrCat(kOwnerName, " has gone")));
}

}  // namespace stagewright
