#include "worker_daemon/daemon/places/run_weights.h"

#include <functional>
#include <utility>

#include "absl/strings/str_replace.h"
#include "common/artifacts/artifact_name.h"
#include "common/base/error_details.h"
#include "common/data/safetensors.h"
#include "common/data/weights_check.h"
#include "worker_daemon/checkpoint/ownership.h"
#include "worker_daemon/checkpoint/unread_tensors.h"
#include "worker_daemon/step/device_plan.h"

namespace stagewright {
namespace {

using Names = std::set<std::string>;

// Under which name the file has a parameter, as ParameterStore looks for it.
absl::Status AddParameter(const Parameter& parameter, const SafetensorsHeader& header,
                          Names& names) {
  RETURN_IF_ERROR(CheckParameter(parameter, header));
  for (const std::string& name : NamesOf(StoredTensor(parameter))) {
    if (header.Find(name) == nullptr) continue;
    names.insert(name);
    break;
  }
  return absl::OkStatus();
}

// Names of what stages write, whoever does.
Names NamesOfStages(const Graph& graph, const Program& program) {
  Names names;
  for (const DeviceProgram& device : program.devices) {
    for (ParameterId id : ParametersToWrite(graph, program, device.device)) {
      const std::vector<std::string> own = NamesOf(StoredTensor(graph.parameter(id)));
      names.insert(own.begin(), own.end());
    }
  }
  return names;
}

// What no stage writes.
Names UnreadNames(const Graph& graph, const Program& program, const SafetensorsHeader& header) {
  const Names written = NamesOfStages(graph, program);
  Names names;
  for (const SafetensorsEntry& tensor : header.tensors)
    if (!written.contains(tensor.name)) names.insert(tensor.name);
  return names;
}

absl::StatusOr<Names> NamesFor(const DeviceJob& job, const std::vector<DeviceId>& devices,
                               const SafetensorsHeader& header) {
  Names names;
  for (DeviceId device : devices) {
    // A run that goes on has its parameters from the checkpoint.
    if (job.resume == nullptr) {
      for (const Program* program : {job.program.get(), job.evaluation.get()}) {
        if (program == nullptr) continue;
        ASSIGN_OR_RETURN(const DevicePlan plan, MakeDevicePlan(*job.graph, *program, device));
        for (ParameterId id : plan.parameters)
          RETURN_IF_ERROR(AddParameter(job.graph->parameter(id), header, names));
      }
    }
    if (device != UnreadWriter(*job.program)) continue;
    for (const std::string& name : UnreadNames(*job.graph, *job.program, header))
      if (job.resume == nullptr || job.resume->Weight(name) == nullptr) names.insert(name);
  }
  return names;
}

}  // namespace

absl::StatusOr<RunWeights> RunWeights::Fetch(const Artifacts& artifacts, const std::string& name,
                                             GivenUp given_up, const FetchProgress& progress,
                                             const ChooseNames& choose) {
  RunWeights weights(name);
  if (!IsArtifactName(name)) return weights;
  const auto fetch = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const Artifact artifact, artifacts.Find(name, std::move(given_up)));
    ASSIGN_OR_RETURN(const SafetensorsHeader header, ReadHeader(artifact));
    ASSIGN_OR_RETURN(const Names names, choose(header));
    ASSIGN_OR_RETURN(TensorPart part,
                     TensorPart::Fetch(artifact, header, names, artifacts.folder(), progress));
    weights.part_.emplace(std::move(part));
    weights.fetched_bytes_ = artifact.fetched_bytes();
    return absl::OkStatus();
  };
  const absl::Status fetched = Annotate(fetch(), "spec.weights_path");
  // The store is away, or the worker's disk has no room: that may pass.
  if (absl::IsUnavailable(fetched)) return WithStorageFault(fetched);
  RETURN_IF_ERROR(fetched);
  weights.artifact_ = name;
  weights.path_ = weights.part_->path();
  return weights;
}

absl::StatusOr<RunWeights> RunWeights::OfDevices(const Artifacts& artifacts, const DeviceJob& job,
                                                 const std::vector<DeviceId>& devices,
                                                 GivenUp given_up, const FetchProgress& progress) {
  return Fetch(artifacts, job.weights_path, std::move(given_up), progress,
               [&](const SafetensorsHeader& header) { return NamesFor(job, devices, header); });
}

absl::StatusOr<RunWeights> RunWeights::BesideShards(const Artifacts& artifacts,
                                                    const std::string& weights, const Graph& graph,
                                                    const Program& program,
                                                    const std::vector<std::string>& shards,
                                                    GivenUp given_up) {
  const auto choose = [&](const SafetensorsHeader& header) -> absl::StatusOr<Names> {
    Names names = UnreadNames(graph, program, header);
    for (const std::string& shard : shards) {
      ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(shard));
      for (const TensorView& tensor : file.tensors()) names.erase(tensor.name);
    }
    return names;
  };
  return Fetch(artifacts, weights, std::move(given_up), /*progress=*/nullptr, choose);
}

absl::Status RunWeights::Named(const absl::Status& status) const {
  if (status.ok() || artifact_.empty()) return status;
  return WithMessage(status, absl::StrReplaceAll(status.message(), {{path_, artifact_}}));
}

}  // namespace stagewright
