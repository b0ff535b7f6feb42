// Which samples of a data set are of which length: every sample fits one of a model's graphs
// (common/graph/lengths.h), and a file or array holds samples of one shape. Found from the headers
// of files, so that all devices of a job find the same.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"

namespace stagewright {

// The most that a job may train on in all its steps: counts of so many, and of an epoch more, are
// below 2^63.
inline constexpr int64_t kMostTrainedSamples = int64_t{1} << 60;

// Samples [begin, end) fit graph `length`.
struct LengthRun {
  int64_t begin = 0, end = 0;
  int32_t length = 0;
  friend bool operator==(const LengthRun&, const LengthRun&) = default;
};

class SampleLengths {
 public:
  // All of one length.
  explicit SampleLengths(int64_t samples);
  // REQUIRES: the runs begin at 0, follow each other and have lengths in [0, lengths).
  SampleLengths(std::vector<LengthRun> runs, int32_t lengths);

  // The data at `path` for these graphs, which have the same inputs; at least one. Inputs without
  // files are left out. Errors as of Dataset::CountSamples; INVALID_ARGUMENT, naming the file, if
  // samples fit none of the graphs, or their inputs are of different lengths.
  static absl::StatusOr<SampleLengths> Read(std::span<const Graph* const> graphs,
                                            const std::string& path);

  int64_t samples() const { return runs_.empty() ? 0 : runs_.back().end; }
  int32_t lengths() const { return static_cast<int32_t>(counts_.size()); }
  int64_t SamplesOf(int32_t length) const { return counts_[length]; }
  const std::vector<LengthRun>& runs() const { return runs_; }

  // REQUIRES: index in [0, samples()). O(log runs).
  int32_t LengthOf(int64_t index) const;
  // Any of [begin, end) is of the length. O(runs).
  bool Has(int32_t length, int64_t begin, int64_t end) const;
  // The index of a length's i-th sample. REQUIRES: i in [0, SamplesOf(length)). O(runs).
  int64_t IndexOf(int32_t length, int64_t i) const;

 private:
  std::vector<LengthRun> runs_;  // Neighbours differ in length.
  std::vector<int64_t> counts_;  // By length.
};

}  // namespace stagewright
