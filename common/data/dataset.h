// Samples of a data set: for each input of the graph one tensor, named as the input, samples along
// the first dimension, in one file or several (data_files.h). However a data set is cut into files,
// its samples have one order and one index each.
//
// Only the samples that are looked at are read, and none are held in memory. Files stay open.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/data/index_check.h"
#include "common/data/mapped_file.h"
#include "common/data/sample_lengths.h"
#include "common/graph/graph.h"

namespace stagewright {

class InputFiles;

class Dataset {
 public:
  // Without samples or inputs.
  Dataset() = default;

  // Opens the files of the inputs `needed` of the graph; others may be missing, and their files are
  // not opened. NOT_FOUND or INVALID_ARGUMENT, naming file and tensor, if a file cannot be read, a
  // tensor is missing, has another type or shape than the graph says, or no sample; or if inputs
  // have different numbers of samples, in one of the files or altogether.
  static absl::StatusOr<Dataset> Open(const Graph& graph, const std::vector<InputId>& needed,
                                      const std::string& path);

  // The same of data with samples of several lengths: those of one, that of the graph. Indices
  // count all samples; REQUIRES of those given to other calls that they are of the length.
  static absl::StatusOr<Dataset> Open(const Graph& graph, const std::vector<InputId>& needed,
                                      const std::string& path, const SampleLengths& lengths,
                                      int32_t length);

  // Samples of a graph's one input that fill the file, one after the other and nothing else: one
  // that was opened already, wherever it is. REQUIRES: there are samples.
  static Dataset OfRows(const Graph& graph, std::shared_ptr<const MappedFile> file,
                        int64_t samples);

  // The number of samples, from the headers of the files of one input. Errors as of Open.
  static absl::StatusOr<int64_t> CountSamples(const Graph& graph, const std::string& path);

  int64_t samples() const { return samples_; }  // 0 if no input was needed.

  // Bytes of one sample of the input. REQUIRES: the input was needed.
  Bytes SampleBytes(InputId input) const { return inputs_[input.index()].sample_bytes; }

  // "train.safetensors: tensor \"x\": sample 5", counted in its file. REQUIRES: the input was
  // needed, and index in [0, samples()).
  std::string NameOf(InputId input, int64_t index) const;

  // Copies the samples with these indices, in this order, to `out`, which holds
  // indices.size() * SampleBytes(input). REQUIRES: indices in [0, samples()). O(log files) each,
  // and a read per run of samples that follow each other. DATA_LOSS names a file that cannot be
  // read any more: it has become shorter, or its disk failed. OUT_OF_RANGE names file, tensor and
  // sample of an index that no operator of the graph takes (index_check.h).
  absl::Status Gather(InputId input, std::span<const int64_t> indices, std::byte* out) const;

 private:
  struct Shard {
    int64_t first = 0;  // Index of its first sample.
    int64_t samples = 0;
    const MappedFile* file = nullptr;
    size_t offset = 0;  // Where its first sample begins in the file.
  };
  struct InputData {
    std::vector<Shard> shards;  // By first index.
    Bytes sample_bytes = 0;
    int64_t samples = 0;
    std::string name;
  };
  // Which of the data's samples are wanted.
  struct Wanted {
    const SampleLengths* lengths = nullptr;  // Null: all.
    int32_t length = 0;
  };
  static absl::Status AddInput(const Input& input, const std::string& path, Wanted wanted,
                               InputFiles& opened, InputData& data);
  static absl::StatusOr<Dataset> OpenWanted(const Graph& graph, const std::vector<InputId>& needed,
                                            const std::string& path, Wanted wanted);
  const Shard& ShardOf(InputId input, int64_t index) const;

  IndexCheck check_;
  std::vector<std::shared_ptr<const MappedFile>> mappings_;  // One of each shard.
  std::vector<InputData> inputs_;                            // By InputId.
  int64_t samples_ = 0;
};

}  // namespace stagewright
