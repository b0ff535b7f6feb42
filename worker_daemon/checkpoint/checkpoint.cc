#include "worker_daemon/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/atomic_file.h"
#include "common/base/error_details.h"
#include "common/data/safetensors_writer.h"
#include "worker_daemon/checkpoint/output_owner.h"
#include "worker_daemon/checkpoint/own_files.h"
#include "worker_daemon/checkpoint/slices.h"
#include "worker_daemon/checkpoint/state_shares.h"

namespace stagewright {
namespace {

namespace fs = std::filesystem;

constexpr char kModelPrefix[] = "model-";
constexpr char kOptimizerPrefix[] = "optimizer-";
// In the metadata of the files.
constexpr char kBestLoss[] = "best_evaluation_loss";
constexpr char kSinceBest[] = "evaluations_since_best";

// The checkpoints' directories under `root`, with their steps, ascending. Other entries are none of
// our business.
std::vector<std::pair<int64_t, std::string>> StepDirectories(const std::string& root,
                                                             std::error_code& error) {
  std::vector<std::pair<int64_t, std::string>> found;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    absl::string_view digits = name;
    int64_t step = 0;
    if (absl::ConsumePrefix(&digits, "step-") && absl::SimpleAtoi(digits, &step))
      found.emplace_back(step, it->path().string());
  }
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory)
    error.clear();
  std::sort(found.begin(), found.end());
  return found;
}

// Those that can be seen now.
std::vector<std::pair<int64_t, std::string>> StepDirectories(const std::string& root) {
  std::error_code ignored;
  return StepDirectories(root, ignored);
}

bool HasManifest(const std::string& directory) {
  std::error_code error;
  return fs::exists(fs::path(directory) / kManifestName, error);
}

// It has none for certain: a file system that does not answer now says nothing.
bool IsUnfinished(const std::string& directory) {
  std::error_code error;
  return fs::status(fs::path(directory) / kManifestName, error).type() == fs::file_type::not_found;
}

// Whether the checkpoint is of one of the runs; a damaged manifest says nothing against it.
bool IsOf(const std::string& directory, const std::set<std::string>& runs) {
  if (runs.empty()) return true;
  const auto manifest = ReadManifest(directory);
  return !manifest.ok() || runs.contains(manifest->run);
}

// Whether WriteDeviceFiles or WriteManifest gives a file this name, also while it is written.
bool IsOurs(absl::string_view name) {
  return IsFileOrDraft(name, kManifestName) || IsFileOfDevice(name, kModelPrefix) ||
         IsFileOfDevice(name, kOptimizerPrefix);
}

// Without links, "." and a "/" at its end, as far as it is there.
fs::path WholePath(const std::string& path) {
  std::error_code error;
  fs::path whole = fs::weakly_canonical(fs::absolute(path), error);
  if (error) whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

// Files of a checkpoint, and the directory if nothing else is in it. The manifest goes first, so
// that what a crash leaves is no checkpoint.
std::error_code RemoveCheckpoint(const std::string& directory) {
  return RemoveOurs(directory, IsOurs, kManifestName);
}

absl::Status CheckFile(const std::string& directory, const CheckpointFile& wanted) {
  const std::string path = (fs::path(directory) / wanted.name).string();
  ASSIGN_OR_RETURN(const CheckpointFile found, SumFile(path));
  if (found.bytes != wanted.bytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": it has ", found.bytes, " bytes, the manifest says ", wanted.bytes));
  }
  if (found.crc32 != wanted.crc32) {
    return absl::DataLossError(absl::StrCat(path, ": its checksum is ", absl::Hex(found.crc32),
                                            ", the manifest says ", absl::Hex(wanted.crc32)));
  }
  return absl::OkStatus();
}

std::map<std::string, std::string> MetadataOf(const EvaluationHistory& evaluations) {
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  if (evaluations == EvaluationHistory()) return metadata;
  metadata[kBestLoss] = absl::StrFormat("%.17g", evaluations.best_loss);  // Exact.
  metadata[kSinceBest] = absl::StrCat(evaluations.since_best);
  return metadata;
}

absl::Status ReadEvaluations(const SafetensorsFile& file, EvaluationHistory& evaluations) {
  const auto best = file.metadata().find(kBestLoss), since = file.metadata().find(kSinceBest);
  if (best == file.metadata().end() || since == file.metadata().end()) return absl::OkStatus();
  if (absl::SimpleAtod(best->second, &evaluations.best_loss) &&
      absl::SimpleAtoi(since->second, &evaluations.since_best))
    return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(file.path(), ": its metadata about evaluations is \"",
                                          best->second, "\", \"", since->second, "\""));
}

// One that is damaged is of nobody. The generation that the output directory was taken for last may
// write whatever is there: a planner whose state is an older one counts on from a lower number.
absl::Status CheckNotLater(const std::string& directory, const RunGeneration& writer) {
  const auto owner = ReadOwner(fs::path(directory).parent_path().parent_path().string());
  if (owner.ok() && owner->has_value() && (*owner)->run == writer.run &&
      (*owner)->generation == writer.generation)
    return absl::OkStatus();
  const auto manifest = ReadManifest(directory);
  if (!manifest.ok() || manifest->run != writer.run || manifest->generation <= writer.generation)
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(directory, " is a checkpoint of generation ", manifest->generation,
                   " of this job, and this is generation ", writer.generation));
}

absl::StatusOr<CheckpointFile> WriteAndSum(const std::string& path, std::vector<TensorView> tensors,
                                           const EvaluationHistory& evaluations) {
  RETURN_IF_ERROR(WriteSafetensors(path, std::move(tensors), MetadataOf(evaluations)));
  return SumFile(path);
}

}  // namespace

std::string CheckpointRoot(const std::string& output_path) {
  return (fs::path(output_path) / "checkpoints").string();
}

std::string CheckpointDirectory(const std::string& root, int64_t step) {
  return (fs::path(root) / absl::StrFormat("step-%010d", step)).string();
}

absl::StatusOr<std::vector<CheckpointFile>> WriteDeviceFiles(
    const std::string& directory, DeviceId device, const std::vector<TensorView>& model,
    const std::vector<TensorView>& optimizer, const EvaluationHistory& evaluations,
    const RunGeneration& writer) {
  RETURN_IF_ERROR(CheckNotLater(directory, writer));
  std::error_code error;
  fs::create_directories(directory, error);
  if (!error) fs::remove(fs::path(directory) / kManifestName, error);
  if (error) return absl::UnavailableError(absl::StrCat(directory, ": ", error.message()));
  std::vector<CheckpointFile> files;
  for (auto& [prefix, tensors] :
       {std::pair(kModelPrefix, &model), {kOptimizerPrefix, &optimizer}}) {
    if (tensors->empty()) continue;
    const std::string name = absl::StrFormat("%s%05d.safetensors", prefix, device.value());
    auto file = WriteAndSum((fs::path(directory) / name).string(), *tensors, evaluations);
    if (!file.ok()) {
      // Where the disk is full, what is left of an attempt would keep it so. The directory stays,
      // empty or not: another device may be about to open a file in it.
      for (const CheckpointFile& written : files)
        fs::remove(fs::path(directory) / written.name, error);
      return file.status();
    }
    files.push_back(*std::move(file));
  }
  return files;
}

absl::Status CompleteCheckpoint(const std::string& directory, const Graph& graph,
                                Manifest manifest) {
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const CheckpointFile& a, const CheckpointFile& b) { return a.name < b.name; });
  for (const CheckpointFile& file : manifest.files) {
    ASSIGN_OR_RETURN(const SafetensorsFile shard,
                     SafetensorsFile::Open((fs::path(directory) / file.name).string()));
    RETURN_IF_ERROR(ReadEvaluations(shard, manifest.evaluations));
    const bool model = absl::string_view(file.name).substr(0, 6) == kModelPrefix;
    auto& map = model ? manifest.weight_map : manifest.optimizer_map;
    for (const TensorView& tensor : shard.tensors()) {
      const auto [other, inserted] = map.emplace(tensor.name, file.name);
      if (!inserted) {
        return absl::InvalidArgumentError(absl::StrCat(shard.path(), ": tensor \"", tensor.name,
                                                       "\" is in ", other->second, ", too"));
      }
    }
  }
  for (const SlicedTensor& sliced : SlicedTensors(graph)) {
    manifest.slices[sliced.names.front()] = {sliced.dim, sliced.slices};
    for (size_t i = 1; i < sliced.names.size(); ++i)
      manifest.aliases[sliced.names[i]] = sliced.names.front();
  }
  for (const Parameter& parameter : graph.parameters()) {
    if (!parameter.data.has_value() && !manifest.weight_map.contains(parameter.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(directory, ": no file has parameter \"", parameter.name, "\""));
    }
    for (const std::string& alias : parameter.aliases) manifest.aliases[alias] = parameter.name;
  }
  RETURN_IF_ERROR(CheckNotLater(directory, {manifest.run, manifest.generation}));
  // Whoever finds a checkpoint may remove older ones: a crash must not take the directories of this
  // one, which some device has made.
  const fs::path root = fs::path(directory).parent_path();
  RETURN_IF_ERROR(SyncDirectory(root.string()));
  RETURN_IF_ERROR(SyncDirectory(root.parent_path().string()));
  return WriteManifest(directory, manifest);
}

std::vector<std::string> PruneCheckpoints(const std::string& root, int64_t step, int keep,
                                          const std::set<std::string>& runs,
                                          const std::function<bool(int64_t)>& to_stay) {
  std::vector<std::string> left;
  int kept = 0;
  const auto stays = [&](int64_t taken) { return to_stay(taken) ? kept++ < keep : taken == step; };
  auto directories = StepDirectories(root);
  std::reverse(directories.begin(), directories.end());
  for (const auto& [taken, directory] : directories) {
    if (taken > step) continue;
    if (!IsUnfinished(directory) && (!IsOf(directory, runs) || stays(taken))) continue;
    if (const std::error_code error = RemoveCheckpoint(directory); error)
      left.push_back(absl::StrCat(directory, ": ", error.message()));
  }
  return left;
}

std::vector<std::string> ClearCheckpoints(const std::string& root, const std::string& run,
                                          const std::function<bool()>& stop) {
  std::vector<std::string> left;
  for (const auto& [step, directory] : StepDirectories(root)) {
    if (stop()) break;
    if (const auto manifest = ReadManifest(directory); manifest.ok() && manifest->run == run)
      continue;
    if (const std::error_code error = RemoveCheckpoint(directory); error)
      left.push_back(absl::StrCat(directory, ": ", error.message()));
  }
  return left;
}

std::vector<std::string> DropUnfinished(const std::string& root, const std::set<int64_t>& kept) {
  std::vector<std::string> left;
  for (const auto& [step, directory] : StepDirectories(root)) {
    if (!IsUnfinished(directory) || kept.contains(step)) continue;
    if (const std::error_code error = RemoveCheckpoint(directory); error)
      left.push_back(absl::StrCat(directory, ": ", error.message()));
  }
  return left;
}

std::vector<std::string> DropFailed(const std::string& root, const std::set<int64_t>& steps) {
  std::vector<std::string> left;
  for (const int64_t step : steps) {
    const std::string directory = CheckpointDirectory(root, step);
    if (!IsUnfinished(directory)) continue;
    if (const std::error_code error = RemoveCheckpoint(directory); error)
      left.push_back(absl::StrCat(directory, ": ", error.message()));
  }
  return left;
}

bool ResumesOwn(const std::string& resume_path, const std::string& output_path) {
  if (resume_path.empty()) return false;
  const fs::path from = WholePath(resume_path), root = WholePath(CheckpointRoot(output_path));
  return from == WholePath(output_path) ||
         std::mismatch(root.begin(), root.end(), from.begin(), from.end()).first == root.end();
}

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& directory) {
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  ASSIGN_OR_RETURN(checkpoint.manifest_, ReadManifest(directory));
  for (const CheckpointFile& file : checkpoint.manifest_.files) {
    RETURN_IF_ERROR(CheckFile(directory, file));
    ASSIGN_OR_RETURN(SafetensorsFile opened,
                     SafetensorsFile::Open((fs::path(directory) / file.name).string()));
    checkpoint.files_.emplace(file.name, std::move(opened));
  }
  RETURN_IF_ERROR(Annotate(checkpoint.JoinStateShares(), directory));
  for (const auto& [name, sliced] : checkpoint.manifest_.slices) {
    auto joined = checkpoint.JoinSliced(name, sliced);
    if (!joined.ok()) return absl::DataLossError(absl::StrCat(directory, ": ", joined.message()));
  }
  return checkpoint;
}

// A state has the shape of its parameter.
absl::Status Checkpoint::JoinStateShares() {
  std::map<std::string, std::vector<StoredShare>> states;
  for (const auto& [name, file] : manifest_.optimizer_map) {
    const TensorView* tensor = FindIn(manifest_.optimizer_map, name);
    std::optional<StateShare> share = ParseShareName(name);
    if (!share.has_value() || tensor == nullptr) continue;
    std::string state = share->state;
    states[state].push_back({*std::move(share), *tensor});
  }
  for (auto& [state, shares] : states) {
    const std::string parameter = state.substr(0, std::min(state.rfind('.'), state.size()));
    const TensorView* weight = FindIn(manifest_.weight_map, parameter);
    if (weight == nullptr) {
      return absl::DataLossError(
          absl::StrCat("there is \"", state, "\" and no \"", parameter, "\""));
    }
    ASSIGN_OR_RETURN(OwnedTensor joined, JoinShares(state, weight->shape, std::move(shares)));
    joined_state_views_[state] =
        joined_states_.emplace(state, std::move(joined)).first->second.view();
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::JoinSliced(const std::string& name, const SlicedEntry& sliced) {
  std::vector<TensorView> weights;
  std::map<std::string, std::vector<TensorView>> states;
  for (const std::string& slice : sliced.slices) {
    const TensorView* weight = FindIn(manifest_.weight_map, slice);
    if (weight == nullptr) return absl::DataLossError(absl::StrCat("there is no \"", slice, "\""));
    weights.push_back(*weight);
    for (const auto& [state, view] : OptimizerState(slice)) states[state].push_back(view);
  }
  const auto& shape = weights.front().shape;
  ASSIGN_OR_RETURN(OwnedTensor whole, JoinSlices(name, weights, sliced.dim));
  joined_views_[name] = joined_weights_.emplace(name, std::move(whole)).first->second.view();
  for (const auto& [state, views] : states) {
    const std::string full = absl::StrCat(name, ".", state);
    if (views.front().shape != shape) {  // A number of steps, the same of all.
      joined_state_views_[full] = views.front();
      continue;
    }
    if (views.size() != weights.size())
      return absl::DataLossError(absl::StrCat("not all of \"", full, "\" is there"));
    ASSIGN_OR_RETURN(OwnedTensor joined, JoinSlices(full, views, sliced.dim));
    joined_state_views_[full] =
        joined_states_.emplace(full, std::move(joined)).first->second.view();
  }
  return absl::OkStatus();
}

std::vector<std::string> Checkpoint::WeightNames() const {
  std::set<std::string> slices;
  std::vector<std::string> names;
  for (const auto& [name, sliced] : manifest_.slices) {
    names.push_back(name);
    slices.insert(sliced.slices.begin(), sliced.slices.end());
  }
  for (const auto& [name, file] : manifest_.weight_map) {
    if (!slices.contains(name)) names.push_back(name);
  }
  return names;
}

absl::StatusOr<Checkpoint> Checkpoint::Find(const std::string& path,
                                            std::vector<std::string>* skipped,
                                            const std::set<std::string>& runs) {
  if (HasManifest(path)) return Open(path);
  std::error_code error;
  auto directories = StepDirectories(CheckpointRoot(path), error);
  if (directories.empty() && !error) directories = StepDirectories(path, error);
  if (error) {
    return WithSystemError(absl::UnavailableError(absl::StrCat(
                               path, ": cannot look for checkpoints: ", error.message())),
                           error.value());
  }
  std::reverse(directories.begin(), directories.end());
  std::vector<std::string> reasons;
  for (const auto& [step, directory] : directories) {
    if (!IsOf(directory, runs)) continue;
    auto checkpoint = Open(directory);
    if (checkpoint.ok()) {
      skipped->insert(skipped->end(), reasons.begin(), reasons.end());
      return checkpoint;
    }
    reasons.push_back(absl::StrCat("checkpoint skipped: ", checkpoint.status().message()));
  }
  return absl::NotFoundError(absl::StrCat(path, ": there is no whole checkpoint",
                                          reasons.empty() ? "" : "; ",
                                          absl::StrJoin(reasons, "; ")));
}

const TensorView* Checkpoint::FindIn(const std::map<std::string, std::string>& map,
                                     const std::string& name) const {
  const auto file = map.find(name);
  if (file == map.end()) return nullptr;
  const auto opened = files_.find(file->second);
  return opened == files_.end() ? nullptr : opened->second.Find(name);
}

const TensorView* Checkpoint::Weight(const std::string& name) const {
  const auto joined = joined_views_.find(name);
  if (joined != joined_views_.end()) return &joined->second;
  return FindIn(manifest_.weight_map, name);
}

const TensorView* Checkpoint::SharedState(const std::string& name) const {
  return FindIn(manifest_.optimizer_map, name);
}

std::map<std::string, TensorView> Checkpoint::OptimizerState(const std::string& parameter) const {
  std::map<std::string, TensorView> state;
  const std::string prefix = parameter + ".";
  for (auto it = manifest_.optimizer_map.lower_bound(prefix); it != manifest_.optimizer_map.end();
       ++it) {
    absl::string_view name = it->first;
    if (!absl::ConsumePrefix(&name, prefix)) break;
    // "a.b.exp_avg" is of parameter "a.b", not of "a".
    if (name.find('.') != absl::string_view::npos || ParseShareName(it->first)) continue;
    if (const TensorView* tensor = FindIn(manifest_.optimizer_map, it->first))
      state[std::string(name)] = *tensor;
  }
  for (auto it = joined_state_views_.lower_bound(prefix); it != joined_state_views_.end(); ++it) {
    absl::string_view name = it->first;
    if (!absl::ConsumePrefix(&name, prefix)) break;
    if (name.find('.') == absl::string_view::npos) state[std::string(name)] = it->second;
  }
  return state;
}

bool HasCheckpoints(const std::string& output_path) {
  const auto directories = StepDirectories(CheckpointRoot(output_path));
  return std::any_of(directories.begin(), directories.end(),
                     [](const auto& entry) { return HasManifest(entry.second); });
}

}  // namespace stagewright
