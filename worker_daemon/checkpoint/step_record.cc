#include "worker_daemon/checkpoint/step_record.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/data/safetensors_writer.h"
#include "common/graph/graph_data.h"
#include "worker_daemon/checkpoint/state_shares.h"

namespace stagewright {
namespace {

namespace fs = std::filesystem;

constexpr char kLoss[] = "loss";  // In the metadata: parameters may have any name.

fs::path DirectoryOf(const std::string& output_path, int64_t step) {
  return fs::path(output_path) / "steps" / absl::StrFormat("step-%010d", step);
}

absl::Status Damaged(const std::string& path) {
  return absl::DataLossError(absl::StrCat(path, ": it is not a device's record of a step"));
}

}  // namespace

std::string GradientName(const std::string& parameter) {
  return absl::StrCat("gradient/", parameter);
}
std::string ParameterName(const std::string& parameter) {
  return absl::StrCat("parameter/", parameter);
}
std::string StateName(const std::string& state) { return absl::StrCat("state/", state); }

absl::Status WriteStepRecord(const std::string& output_path, int64_t step, DeviceId device,
                             std::vector<TensorView> tensors, double loss) {
  const fs::path directory = DirectoryOf(output_path, step);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot make ", directory.string(), ": ", error.message()));
  }
  const fs::path path = directory / absl::StrFormat("device-%05d.safetensors", device.value());
  return WriteSafetensors(path.string(), std::move(tensors),
                          {{kLoss, absl::StrFormat("%.17g", loss)}});
}

absl::StatusOr<StepRecord> StepRecord::Open(const std::string& output_path, int64_t step) {
  const fs::path directory = DirectoryOf(output_path, step);
  StepRecord record;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    int device = -1;
    if (it->path().extension() != ".safetensors" ||
        std::sscanf(it->path().filename().c_str(), "device-%5d.", &device) != 1)
      continue;
    ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
    const auto found = file.metadata().find(kLoss);
    double loss = 0;
    if (found == file.metadata().end() || !absl::SimpleAtod(found->second, &loss))
      return Damaged(path);
    record.shares_.push_back({DeviceId(device), loss, std::move(file)});
  }
  if (record.shares_.empty())
    return absl::NotFoundError(absl::StrCat(directory.string(), ": there is no record of a step"));
  std::sort(record.shares_.begin(), record.shares_.end(),
            [](const Share& a, const Share& b) { return a.device < b.device; });
  for (const Share& share : record.shares_) record.loss_ += share.loss;
  RETURN_IF_ERROR(Annotate(record.JoinStateShares(), directory.string()));
  return record;
}

absl::Status StepRecord::JoinStateShares() {
  std::map<std::string, std::vector<StoredShare>> found;
  for (const Share& share : shares_) {
    for (const TensorView& tensor : share.file.tensors()) {
      std::optional<StateShare> part = ParseShareName(tensor.name);
      if (!part.has_value()) continue;
      const std::string name = part->state;
      joined_.try_emplace(name, Joined{share.device, {}, {}});
      found[name].push_back({*std::move(part), tensor});
    }
  }
  for (auto& [name, parts] : found) {
    int64_t elements = 0;
    for (const StoredShare& part : parts) elements = std::max(elements, part.share.end);
    Joined& joined = joined_.at(name);
    ASSIGN_OR_RETURN(joined.tensor, JoinShares(name, {elements}, std::move(parts)));
    joined.view = joined.tensor.view();
  }
  return absl::OkStatus();
}

std::vector<StepRecord::Copy> StepRecord::Find(const std::string& name) const {
  std::vector<Copy> copies;
  for (const Share& share : shares_) {
    if (const TensorView* tensor = share.file.Find(name)) copies.push_back({share.device, tensor});
  }
  const auto joined = joined_.find(name);
  if (joined != joined_.end()) copies.push_back({joined->second.device, &joined->second.view});
  return copies;
}

std::vector<std::vector<StepRecord::Copy>> StepRecord::FindSlices(
    const std::string& parameter,
    const std::function<std::string(const std::string&)>& name_of) const {
  constexpr int32_t kMostParts = 1024;
  std::vector<std::vector<Copy>> slices;
  int32_t parts = 2;
  while (parts <= kMostParts && Find(name_of(PartName(parameter, 0, parts))).empty()) ++parts;
  for (int32_t i = 0; i < parts && parts <= kMostParts; ++i)
    slices.push_back(Find(name_of(PartName(parameter, i, parts))));
  return slices;
}

}  // namespace stagewright
