// What runs a job's samples of one shape on a device.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/data/dataset.h"
#include "common/data/sample_lengths.h"
#include "worker_daemon/executor/device_job.h"
#include "worker_daemon/executor/executor.h"

namespace stagewright {

struct JobLength {
  LengthSpec spec;
  std::optional<Dataset> data, evaluation_data;
  std::unique_ptr<Executor> training, evaluation;  // Without `evaluation_data`: null.
};

// Opens the inputs of the data in `path` for every length, as its `data`, and says which samples
// are of which; how many there are, where none is read and all are of one length, only to `count`
// them. Errors of Dataset::Open and SampleLengths::Read.
absl::Status OpenData(const std::vector<InputId>& inputs, const std::string& path, bool count,
                      std::deque<JobLength>& lengths, std::optional<Dataset> JobLength::*data,
                      std::optional<SampleLengths>& samples);

}  // namespace stagewright
