#include "worker_daemon/engine/keyed_dropout.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker_daemon/engine/operator_call.h"

namespace stagewright {
namespace {

// The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", 2014): a bijection that mixes all bits.
uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  x ^= x >> 31;
  return x;
}
constexpr uint64_t kGamma = 0x9e3779b97f4a7c15u;

uint64_t Key(const RandomKey& key, int64_t sample, NodeId node) {
  uint64_t hash = Mix(key.seed + kGamma);
  for (const int64_t part : {key.step, sample, int64_t{node.value()}}) {
    hash = Mix((hash ^ static_cast<uint64_t>(part)) + kGamma);
  }
  return hash;
}

// The dimension that holds the samples, and how many entries of it belong to each.
struct BatchDimension {
  int64_t dimension = 0;
  int64_t entries = 1;
};
std::optional<BatchDimension> FindBatch(const TensorMeta& meta) {
  for (size_t i = 0; i < meta.shape.size(); ++i) {
    if (meta.shape[i].scale > 0)
      return BatchDimension{static_cast<int64_t>(i), meta.shape[i].scale};
  }
  return std::nullopt;
}

const Argument* Find(const Node& node, size_t position, const char* name) {
  if (position < node.args.size()) return &node.args[position];
  for (const NamedArgument& given : node.kwargs) {
    if (given.name == name) return &given.value;
  }
  return nullptr;
}

// Behind what is queued on the device, which the host does not wait for: LibTorch keeps pinned
// memory until it has been read.
at::Tensor MoveTo(at::Device device, const at::Tensor& mask) {
  if (!device.is_cuda()) return mask.to(device, at::kBool);
  return mask.to(at::kBool).contiguous().pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace

void KeyedUniforms(uint64_t key, int64_t count, double* out) {
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = Mix(key + (static_cast<uint64_t>(i) + 1) * kGamma);
    out[i] = static_cast<double>(bits >> 11) * 0x1p-53;
  }
}

bool KeyedDropout::IsDropout(const Node& node) {
  static constexpr std::array kTargets = {
      "aten.dropout.default", "aten.native_dropout.default", "aten.feature_dropout.default",
      "aten.alpha_dropout.default", "aten.feature_alpha_dropout.default"};
  for (const char* target : kTargets) {
    if (node.target == target) return true;
  }
  return false;
}

absl::StatusOr<KeyedDropout> KeyedDropout::Create(const Node& node, NodeId id, bool training) {
  KeyedDropout dropout;
  dropout.node_ = &node;
  dropout.id_ = id;
  dropout.alpha_ = node.target.find("alpha") != std::string::npos;
  dropout.per_feature_ = node.target.find("feature") != std::string::npos;
  dropout.input_ = Find(node, 0, "input");
  const Argument* probability = Find(node, 1, "p");
  const Argument* train = Find(node, 2, "train");
  if (dropout.input_ == nullptr || probability == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(node), ": input or p is missing"));
  }
  if (const auto* real = std::get_if<double>(&probability->value)) {
    dropout.probability_ = *real;
  } else if (const auto* integer = std::get_if<SymInt>(&probability->value)) {
    dropout.probability_ = static_cast<double>(integer->At(0));
  } else {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(node), ": p is not a number"));
  }
  if (!(dropout.probability_ >= 0 && dropout.probability_ <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(node), ": p = ", dropout.probability_, " is not in [0, 1]"));
  }
  const bool* flag = train == nullptr ? nullptr : std::get_if<bool>(&train->value);
  dropout.active_ = training && (flag == nullptr || *flag);
  return dropout;
}

at::Tensor KeyedDropout::Mask(const at::Tensor& input, int64_t samples,
                              const RandomKey& key) const {
  // One row of numbers per sample, laid out [samples, shape of one sample].
  const std::optional<BatchDimension> batch = FindBatch(node_->outputs[0]);
  std::vector<int64_t> one = input.sizes().vec();
  if (per_feature_) {
    for (size_t i = 2; i < one.size(); ++i) one[i] = 1;
  }
  if (batch.has_value()) one[batch->dimension] = batch->entries;
  const int64_t rows = batch.has_value() ? samples : 1;
  std::vector<int64_t> shape = {rows};
  shape.insert(shape.end(), one.begin(), one.end());
  at::Tensor uniforms = at::empty(shape, at::kDouble);
  const int64_t row = uniforms.numel() / std::max<int64_t>(rows, 1);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t sample = batch.has_value() ? key.first_sample + i : -1;
    KeyedUniforms(Key(key, sample, id_), row, uniforms.data_ptr<double>() + i * row);
  }
  at::Tensor mask = uniforms.ge_(probability_);
  if (!batch.has_value()) return MoveTo(input.device(), mask.squeeze(0));
  std::vector<int64_t> whole = one;
  whole[batch->dimension] = rows * batch->entries;
  return MoveTo(input.device(), mask.movedim(0, batch->dimension).reshape(whole));
}

absl::Status KeyedDropout::Run(const at::Tensor& input, int64_t samples, const RandomKey& key,
                               std::vector<at::Tensor>& outputs) const {
  const bool two_outputs = node_->outputs.size() == 2;  // native_dropout
  if (!active_ || probability_ == 0 || input.numel() == 0) {
    outputs.push_back(input);
    if (two_outputs) outputs.push_back(at::ones_like(input, input.options().dtype(at::kBool)));
    return absl::OkStatus();
  }
  at::Tensor mask;
  {
    at::NoGradGuard no_grad;
    mask = Mask(input, samples, key);
  }
  if (!alpha_) {
    const double scale = probability_ == 1 ? 0.0 : 1.0 / (1.0 - probability_);
    outputs.push_back((input * mask).mul_(scale));  // Keeps the mask, a byte per element.
  } else if (probability_ == 1) {
    outputs.push_back(input * at::zeros_like(input));
  } else {
    const double alpha = 1.7580993408473766;  // SELU's lambda * alpha: what a dropped unit becomes.
    const double p = probability_;
    const double a = 1.0 / std::sqrt((alpha * alpha * p + 1) * (1 - p));
    const at::Tensor kept = mask.to(input.options());
    outputs.push_back(input * (kept * a) + ((kept - 1) * (alpha * a) + alpha * a * p));
  }
  if (two_outputs) outputs.push_back(mask.expand_as(input).to(at::kBool));
  return absl::OkStatus();
}

}  // namespace stagewright
