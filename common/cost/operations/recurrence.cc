#include "common/cost/operations/recurrence.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "common/cost/operations/operands.h"
#include "common/graph/aten.h"

namespace stagewright {
namespace {

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// What a cell keeps for its backward pass per number of its state, and into how many parts its
// matrices are divided.
struct CellKind {
  double gates, saved;
};

CellKind KindOfCell(std::string_view name) {
  const bool cell = EndsWith(name, "_cell");
  if (name.substr(0, 4) == "lstm") return {4, cell ? 5.0 : 17.0};
  if (name.substr(0, 3) == "gru") return {3, cell ? 6.0 : 7.0};
  return {1, cell ? 0.0 : 1.0};
}

// The steps of a sequence lie along the dimension that does not grow with the samples. Packed
// sequences tell by the sizes of their steps' batches how many there are.
double StepsOf(const Graph& graph, const Node& node, const TensorMeta& input, int64_t samples) {
  if (EndsWith(node.target, ".data")) {
    const auto batches = Operand(graph, node, 1);
    return batches ? Elements(*batches, samples) : 1;
  }
  double steps = 1;
  for (size_t d = 0; d + 1 < input.shape.size(); ++d) {
    if (input.shape[d].scale == 0) steps *= static_cast<double>(input.shape[d].offset);
  }
  return steps;
}

}  // namespace

Recurrence RecurrenceOf(const Graph& graph, const Node& node, int64_t samples) {
  Recurrence found;
  const std::string_view name = AtenName(node.target);
  const auto input = Operand(graph, node, 0);
  if (!input || input->shape.empty() || samples <= 0) return found;
  const auto width = static_cast<double>(input->shape.back().At(samples));
  const double rows = width > 0 ? Elements(*input, samples) / width : 0;
  const double steps =
      EndsWith(name, "_cell") ? 1 : std::max(1.0, StepsOf(graph, node, *input, samples));
  const CellKind kind = KindOfCell(name);
  double state_weights = 0, cells = 0;
  double unpaired = 0;  // Rows of a matrix for inputs, whose cell's matrix for states comes next.
  for (const TensorMeta& tensor : OperandsFrom(graph, node, 2)) {
    if (tensor.shape.size() != 2) continue;  // Biases, and states of whole sequences.
    const auto height = static_cast<double>(tensor.shape[0].At(samples));
    const double weights = Elements(tensor, samples);
    if (height == unpaired) {
      state_weights += weights;
      found.saved_elements += rows * height / kind.gates * kind.saved;
      ++cells;
      unpaired = 0;
    } else {
      found.input_flops += 2 * rows * weights;
      unpaired = height;
    }
  }
  if (cells == 0) return found;
  found.steps = steps * cells;
  found.step_flops = 2 * rows * state_weights / found.steps;
  return found;
}

}  // namespace stagewright
