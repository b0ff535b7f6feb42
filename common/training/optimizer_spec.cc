#include "common/training/optimizer_spec.h"

#include <utility>

#include "common/training/field_check.h"

namespace stagewright {
namespace {

constexpr absl::string_view kAdamW = "adamw";

}  // namespace

std::vector<std::string> TrainableOptimizerNames() {
  std::vector<std::string> names = NamesIn(kOptimizerNames);
  names.emplace_back(kAdamW);
  return names;
}

std::optional<OptimizerSpec> OptimizerByName(absl::string_view name) {
  OptimizerSpec spec;
  spec.decoupled_weight_decay = name == kAdamW;
  const auto kind = spec.decoupled_weight_decay ? Optimizer::kAdam : FindIn(kOptimizerNames, name);
  if (!kind.has_value()) return std::nullopt;
  spec.kind = *kind;
  return spec;
}

std::string StateName(Optimizer kind) {
  return std::string(
      NameIn(kOptimizerNames, kind == Optimizer::kSgdMomentum ? Optimizer::kSgd : kind));
}

absl::Status Check(const OptimizerSpec& spec, absl::string_view of) {
  RETURN_IF_ERROR(CheckPositive(of, "optimizer.learning_rate", spec.learning_rate));
  RETURN_IF_ERROR(CheckNotNegative(of, "optimizer.weight_decay", spec.weight_decay));
  RETURN_IF_ERROR(Check(spec.schedule, of));
  if (spec.kind == Optimizer::kSgdMomentum && !(spec.momentum > 0 && spec.momentum < 1))
    return WrongField(of, "optimizer.momentum", "must lie in (0, 1), is ", spec.momentum);
  if (spec.kind != Optimizer::kAdam) return absl::OkStatus();
  const std::pair<const char*, double> decays[] = {{"optimizer.beta1", spec.beta1},
                                                   {"optimizer.beta2", spec.beta2}};
  for (const auto& [field, value] : decays) {
    if (!(value >= 0 && value < 1)) return WrongField(of, field, "must lie in [0, 1), is ", value);
  }
  return CheckPositive(of, "optimizer.epsilon", spec.epsilon);
}

}  // namespace stagewright
