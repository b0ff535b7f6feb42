#include "worker_daemon/checkpoint/unread_tensors.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker_daemon/checkpoint/ownership.h"
#include "worker_daemon/checkpoint/shards.h"

namespace stagewright {
namespace {

// Which parameters of the graph stages write, or are constants.
std::vector<bool> WrittenOtherwise(const Graph& graph, const Program& program) {
  std::vector<bool> written(graph.parameters().size(), false);
  for (const DeviceProgram& device : program.devices) {
    for (ParameterId id : ParametersToWrite(graph, program, device.device))
      written[id.index()] = true;
  }
  for (size_t i = 0; i < written.size(); ++i)
    written[i] = written[i] || graph.parameters()[i].data.has_value();
  return written;
}

absl::Status CheckFits(const TensorView& tensor, const Parameter& parameter,
                       const std::string& where) {
  if (tensor.dtype == parameter.dtype && tensor.shape == parameter.shape) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      where, ": tensor \"", tensor.name, "\" is ", Describe(tensor.dtype, tensor.shape),
      ", the graph says ", Describe(parameter.dtype, parameter.shape)));
}

}  // namespace

DeviceId UnreadWriter(const Program& program) { return program.devices.front().device; }

absl::StatusOr<UnreadTensors> UnreadTensors::Open(const Graph& graph, const Program& program,
                                                  const std::string& weights,
                                                  std::shared_ptr<const Checkpoint> resume) {
  UnreadTensors unread;
  unread.resume_ = std::move(resume);
  const std::vector<bool> written = WrittenOtherwise(graph, program);
  const auto in_file = [&](const std::string& name) -> absl::StatusOr<const TensorView*> {
    if (!unread.file_.has_value()) {
      ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(weights));
      unread.file_.emplace(std::move(file));
    }
    return unread.file_->Find(name);
  };
  std::set<std::string> of_graph;
  for (size_t i = 0; i < written.size(); ++i) {
    const Parameter& parameter = graph.parameters()[i];
    const std::vector<std::string> names = NamesOf(StoredTensor(parameter));
    of_graph.insert(names.begin(), names.end());
    if (written[i]) continue;
    const TensorView* found = nullptr;
    for (size_t n = 0; n < names.size() && found == nullptr && unread.resume_ != nullptr; ++n)
      found = unread.resume_->Weight(names[n]);
    const std::string& where = found != nullptr ? unread.resume_->directory() : weights;
    for (size_t n = 0; n < names.size() && found == nullptr; ++n) {
      ASSIGN_OR_RETURN(found, in_file(names[n]));
    }
    if (found == nullptr) {
      return absl::NotFoundError(
          absl::StrCat(where, ": there is no tensor \"", parameter.name, "\""));
    }
    RETURN_IF_ERROR(CheckFits(*found, parameter, where));
    unread.tensors_.push_back(*found);
    unread.tensors_.back().name = parameter.name;
  }
  if (unread.resume_ != nullptr) {
    for (const std::string& name : unread.resume_->WeightNames()) {
      if (!of_graph.contains(name)) unread.tensors_.push_back(*unread.resume_->Weight(name));
    }
    return unread;
  }
  RETURN_IF_ERROR(in_file("").status());
  for (const TensorView& tensor : unread.file_->tensors()) {
    if (!of_graph.contains(tensor.name)) unread.tensors_.push_back(tensor);
  }
  return unread;
}

}  // namespace stagewright
