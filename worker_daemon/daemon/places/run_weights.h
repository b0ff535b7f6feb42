// The weights of a run as a file of this machine: the file that the job names, or, where it names
// an artifact, one with the tensors that this worker reads and no other.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/artifacts/artifacts.h"
#include "common/artifacts/tensor_part.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright {

class RunWeights {
 public:
  // A file that the job names.
  explicit RunWeights(std::string path) : path_(std::move(path)) {}

  // What the devices read when they begin, of job.weights_path. Errors, which name the field, of
  // Artifacts::Find, ReadHeader and TensorPart::Fetch; NOT_FOUND if a parameter is missing.
  static absl::StatusOr<RunWeights> OfDevices(const Artifacts& artifacts, const DeviceJob& job,
                                              const std::vector<DeviceId>& devices,
                                              GivenUp given_up,
                                              const FetchProgress& progress = nullptr);
  // What no shard has, for MergeShards. The same errors, and those of SafetensorsFile::Open.
  static absl::StatusOr<RunWeights> BesideShards(const Artifacts& artifacts,
                                                 const std::string& weights, const Graph& graph,
                                                 const Program& program,
                                                 const std::vector<std::string>& shards,
                                                 GivenUp given_up);

  // It can be opened while this object lives.
  const std::string& path() const { return path_; }
  // Bytes that were fetched for it.
  uint64_t fetched_bytes() const { return fetched_bytes_; }
  // An error with the artifact's name where it had the path.
  absl::Status Named(const absl::Status& status) const;

 private:
  // Which tensors are wanted.
  using ChooseNames =
      std::function<absl::StatusOr<std::set<std::string>>(const SafetensorsHeader& header)>;
  static absl::StatusOr<RunWeights> Fetch(const Artifacts& artifacts, const std::string& name,
                                          GivenUp given_up, const FetchProgress& progress,
                                          const ChooseNames& choose);

  std::string path_;
  std::string artifact_;  // Empty: a file that the job names.
  uint64_t fetched_bytes_ = 0;
  std::optional<TensorPart> part_;
};

}  // namespace stagewright
