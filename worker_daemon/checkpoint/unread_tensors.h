// Tensors of the module that training neither reads nor changes: counters of batches, parameters of
// parts that the forward pass leaves out, whatever else is in the weights file. They are in every
// checkpoint, so that it has all that the module has. Written by the program's first device.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/data/safetensors.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "worker_daemon/checkpoint/checkpoint.h"

namespace stagewright {

class UnreadTensors {
 public:
  // Those that no stage of the program uses, as they are in the checkpoint `resume` or, if that is
  // null or of a time when checkpoints did not have them, in the file `weights`. Constants of the
  // graph are none. NOT_FOUND or INVALID_ARGUMENT, naming file and tensor, if one of the graph is
  // missing or has another type or shape; errors of SafetensorsFile::Open.
  static absl::StatusOr<UnreadTensors> Open(const Graph& graph, const Program& program,
                                            const std::string& weights,
                                            std::shared_ptr<const Checkpoint> resume);

  // Under one name each. Views live as long as this object.
  const std::vector<TensorView>& tensors() const { return tensors_; }

 private:
  std::shared_ptr<const Checkpoint> resume_;
  std::optional<SafetensorsFile> file_;
  std::vector<TensorView> tensors_;
};

// The device that writes them.
DeviceId UnreadWriter(const Program& program);

}  // namespace stagewright
