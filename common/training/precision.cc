#include "common/training/precision.h"

#include "common/training/field_check.h"

namespace stagewright {

absl::Status Check(Precision precision, const Graph& graph, bool asynchronous,
                   absl::string_view of) {
  if (precision == Precision::kGraph) return absl::OkStatus();
  for (const Parameter& parameter : graph.parameters()) {
    if (!parameter.trainable || parameter.dtype == DType::kFloat32) continue;
    return WrongField(of, "precision", NameIn(kPrecisionNames, precision),
                      ": mixed precision trains float32 parameters, \"", parameter.name,
                      "\" is of another type");
  }
  if (precision == Precision::kFloat16 && asynchronous) {
    return WrongField(of, "precision", NameIn(kPrecisionNames, precision),
                      ": an asynchronous plan has no point at which all devices agree on the scale "
                      "of the loss; bf16 needs none");
  }
  return absl::OkStatus();
}

}  // namespace stagewright
