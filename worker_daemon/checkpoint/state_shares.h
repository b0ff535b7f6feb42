// Optimizer state that the replicas of a stage share out (parameter_shares.h): each writes its
// share under a name of its own, and whoever reads puts the shares together, so that a checkpoint
// tells nothing about the plan. No LibTorch here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/data/safetensors.h"
#include "common/data/sliced_tensors.h"

namespace stagewright {

// Elements of a state from `begin` to before `end`, row-major, in a row.
struct StateShare {
  std::string state;  // "layer.weight.exp_avg"
  int64_t begin = 0;
  int64_t end = 0;
};

// "layer.weight.exp_avg@0-128", and the inverse: nothing for the name of a whole state.
std::string ShareName(const StateShare& share);
std::optional<StateShare> ParseShareName(std::string_view name);

struct StoredShare {
  StateShare share;
  TensorView tensor;
};

// The state of that shape. DATA_LOSS, naming it, unless `shares`, in any order, are all of it, each
// element once and of one type; errors of ReadTensor. O(bytes).
absl::StatusOr<OwnedTensor> JoinShares(const std::string& state, const std::vector<int64_t>& shape,
                                       std::vector<StoredShare> shares);

}  // namespace stagewright
