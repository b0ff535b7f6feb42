#include "worker_daemon/torch/keyed_dropout.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>

#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "worker_daemon/cuda/keyed_mask.h"
#include "worker_daemon/cuda/keyed_numbers.h"
#include "worker_daemon/torch/current_stream.h"
#include "worker_daemon/torch/operator_call.h"

namespace stagewright {
namespace {

uint64_t Key(const RandomKey& key, int64_t sample, NodeId node) {
  uint64_t hash = Mix(key.seed + kGamma);
  for (const int64_t part : {key.step, sample, int64_t{node.value()}}) {
    hash = Mix((hash ^ static_cast<uint64_t>(part)) + kGamma);
  }
  return hash;
}

// Keys of masks that belong to no sample: the same for all of a step, or of one pass as a whole.
constexpr int64_t kWholeStep = -1;
int64_t WholePass(int64_t first_sample) { return -2 - first_sample; }

// Where a graph without layouts says nothing, the samples are taken to lie along the first
// dimension whose size depends on their number.
std::optional<SampleLayout> LayoutOf(const TensorMeta& meta) {
  if (meta.IsBatched() || meta.mixed) return meta.Samples();
  for (size_t i = 0; i < meta.shape.size(); ++i) {
    if (meta.shape[i].scale > 0 && meta.shape[i].offset == 0)
      return SampleLayout{static_cast<int32_t>(i), 1};
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

// Without the sign: LibTorch's shift copies it.
at::Tensor ShiftedRight(const at::Tensor& x, int64_t bits) {
  const int64_t kept = (int64_t{1} << (64 - bits)) - 1;
  return x.bitwise_right_shift(at::Scalar(bits)).bitwise_and_(at::Scalar(kept));
}

at::Scalar Signed(uint64_t number) { return at::Scalar(static_cast<int64_t>(number)); }

// The least number that is kept. Exact, since numbers are shares of 2^53.
uint64_t Least(double probability) {
  return static_cast<uint64_t>(std::ceil(std::ldexp(probability, kNumberBits)));
}

// Which numbers of the rows are at least `probability`, on the processor.
at::Tensor KeptOnHost(const std::vector<uint64_t>& keys, int64_t row, double probability) {
  at::Tensor uniforms = at::empty({std::ssize(keys), row}, at::kDouble);
  for (size_t i = 0; i < keys.size(); ++i)
    KeyedUniforms(keys[i], row, uniforms.data_ptr<double>() + static_cast<int64_t>(i) * row);
  return uniforms.ge_(probability).to(at::kBool);
}

#if STAGEWRIGHT_HAVE_CUDA
// The same in one launch: in LibTorch's operators it takes more than twenty, a quarter of a step of
// BERT with its 37 dropouts.
at::Tensor KeptOnGpu(const std::vector<uint64_t>& keys, int64_t row, double probability,
                     at::Device device) {
  const c10::DeviceGuard guard(device);
  at::Tensor kept = at::empty({std::ssize(keys), row}, at::TensorOptions(at::kBool).device(device));
  TORCH_CHECK(QueueKeyedMask(keys, row, Least(probability), kept.data_ptr<bool>(),
                             CurrentStream(device.str())),
              "a mask could not be launched");
  return kept;
}
#endif

}  // namespace

// The function of KeyedUniforms in LibTorch's operators: integers multiply modulo 2^64, signed or
// not.
at::Tensor KeptOnDevice(const std::vector<uint64_t>& keys, int64_t row, double probability,
                        at::Device device) {
  at::Tensor host = at::empty({std::ssize(keys), 1}, at::kLong);
  for (size_t i = 0; i < keys.size(); ++i)
    host.data_ptr<int64_t>()[i] = static_cast<int64_t>(keys[i]);
  const auto options = at::TensorOptions().device(device).dtype(at::kLong);
  at::Tensor x = at::arange(1, row + 1, options).mul_(Signed(kGamma)).add(host.to(device));
  x.bitwise_xor_(ShiftedRight(x, 30)).mul_(Signed(kFirstFactor));
  x.bitwise_xor_(ShiftedRight(x, 27)).mul_(Signed(kSecondFactor));
  x.bitwise_xor_(ShiftedRight(x, 31));
  return ShiftedRight(x, 64 - kNumberBits).ge(Signed(Least(probability)));
}

void KeyedUniforms(uint64_t key, int64_t count, double* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<double>(KeyedNumber(key, i)) * 0x1p-53;
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
  const TensorMeta& meta = node_->outputs[0];
  std::vector<int64_t> shape = input.sizes().vec();
  if (per_feature_) {
    for (size_t i = 2; i < shape.size(); ++i) shape[i] = 1;
  }
  const std::optional<SampleLayout> layout = LayoutOf(meta);
  // A channel over all samples is dropped for all of them.
  const bool shared = per_feature_ && layout.has_value() && layout->dim >= 2;
  if (!layout.has_value() || shared) {
    const bool pass = meta.mixed || (meta.DependsOnBatch() && !shared);
    const uint64_t whole = Key(key, pass ? WholePass(key.first_sample) : kWholeStep, id_);
    return Kept({whole}, c10::multiply_integers(shape), input.device()).reshape(shape);
  }
  // One row of numbers per sample, laid out [samples, shape of one sample]; then the samples move
  // to where they lie in the input.
  const int64_t dim = layout->dim;
  std::vector<int64_t> rows = shape;
  rows[dim] = layout->outer;
  rows.insert(rows.begin() + dim + 1, shape[dim] / (layout->outer * samples));
  const int64_t row = c10::multiply_integers(rows);
  rows.insert(rows.begin(), samples);
  std::vector<uint64_t> keys;
  for (int64_t i = 0; i < samples; ++i) keys.push_back(Key(key, key.first_sample + i, id_));
  return Kept(keys, row, input.device()).reshape(rows).movedim(0, dim + 1).reshape(shape);
}

// A device draws by itself: the processor would take a second for what the passes of a
// language model need in fifty milliseconds.
at::Tensor KeyedDropout::Kept(const std::vector<uint64_t>& keys, int64_t row,
                              at::Device device) const {
  if (device.is_cpu()) return KeptOnHost(keys, row, probability_);
#if STAGEWRIGHT_HAVE_CUDA
  if (device.is_cuda()) return KeptOnGpu(keys, row, probability_, device);
#endif
  return KeptOnDevice(keys, row, probability_, device);
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
