#include "worker_daemon/executor/job_length.h"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace stagewright {

absl::Status OpenData(const std::vector<InputId>& inputs, const std::string& path, bool count,
                      std::deque<JobLength>& lengths, std::optional<Dataset> JobLength::*data,
                      std::optional<SampleLengths>& samples) {
  std::vector<const Graph*> graphs;
  for (const JobLength& length : lengths) graphs.push_back(length.spec.graph.get());
  if (graphs.size() == 1 && !inputs.empty()) {
    ASSIGN_OR_RETURN(lengths[0].*data, Dataset::Open(*graphs[0], inputs, path));
    samples.emplace((lengths[0].*data)->samples());
    return absl::OkStatus();
  }
  if (graphs.size() > 1 || count) {
    ASSIGN_OR_RETURN(samples, SampleLengths::Read(graphs, path));
  }
  for (size_t l = 0; l < lengths.size(); ++l) {
    const bool several = graphs.size() > 1;
    auto opened = several
                      ? Dataset::Open(*graphs[l], inputs, path, *samples, static_cast<int32_t>(l))
                      : Dataset::Open(*graphs[l], inputs, path);
    if (!opened.ok()) return opened.status();
    lengths[l].*data = *std::move(opened);
  }
  return absl::OkStatus();
}

}  // namespace stagewright
