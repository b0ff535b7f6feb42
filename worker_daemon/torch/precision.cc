#include "worker_daemon/torch/precision.h"

#include "absl/strings/str_cat.h"

namespace stagewright {

absl::Status CheckPrecision(const Graph& graph, const Program& program, Precision precision) {
  if (precision == Precision::kGraph) return absl::OkStatus();
  const char* name = precision == Precision::kFloat16 ? "precision fp16" : "precision bf16";
  for (const Parameter& parameter : graph.parameters()) {
    if (!parameter.trainable || parameter.dtype == DType::kFloat32) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": parameter \"", parameter.name, "\" is not float32"));
  }
  if (precision == Precision::kFloat16 && program.asynchronous) {
    return absl::InvalidArgumentError(
        "precision fp16: an asynchronous program has no point at which all devices agree on the "
        "scale of the loss");
  }
  return absl::OkStatus();
}

}  // namespace stagewright
