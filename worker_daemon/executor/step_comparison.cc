#include "worker_daemon/executor/step_comparison.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/training/autocast.h"
#include "worker_daemon/torch/tensor_types.h"
#include "worker_daemon/torch/torch_guard.h"

namespace stagewright {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

DType ComputeType(Precision precision, DType dtype) {
  return IsMixed(precision) ? SmallerType(precision) : dtype;
}

absl::StatusOr<at::Tensor> Read(const TensorView& view) {
  at::Tensor tensor = at::empty(view.shape, ToScalarType(view.dtype));
  RETURN_IF_ERROR(ReadTensor(view, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()}));
  return tensor;
}

// The slices of a tensor of `sizes`, which differ from it along the dimension that they share out.
absl::StatusOr<at::Tensor> ReadJoined(const std::vector<const TensorView*>& slices,
                                      at::IntArrayRef sizes) {
  std::vector<at::Tensor> parts;
  for (const TensorView* slice : slices) {
    ASSIGN_OR_RETURN(at::Tensor part, Read(*slice));
    parts.push_back(std::move(part));
  }
  if (parts.size() == 1 || parts.front().sizes().size() != sizes.size()) return parts.front();
  int64_t dim = 0;
  while (dim + 1 < parts.front().dim() && parts.front().size(dim) == sizes[dim]) ++dim;
  if (parts.front().sizes() == sizes) return parts.front();  // Each has all of it.
  return at::cat(parts, dim);
}

// The place of a flat index.
std::vector<int64_t> IndexIn(at::IntArrayRef sizes, int64_t flat) {
  std::vector<int64_t> index(sizes.size());
  for (size_t i = sizes.size(); i-- > 0; flat /= sizes[i]) index[i] = flat % sizes[i];
  return index;
}

std::string Percent(double part) {
  return std::isfinite(part) ? absl::StrFormat("%.3g %%", part * 100) : "infinitely much";
}

}  // namespace

Tolerance ToleranceOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return {.relative = 1e-9, .floor = 1e-11, .loss = 1e-10, .update = 1e-12};
    case DType::kFloat32:
      return {.relative = 1e-4, .floor = 1e-6, .loss = 1e-5, .update = 1e-6};
    // A value is rounded after every operator, and cuts of the batch decide where.
    case DType::kFloat16:
      return {.relative = 1e-2, .floor = 1e-3, .loss = 1e-3, .update = 2e-3};
    case DType::kBFloat16:
      return {.relative = 5e-2, .floor = 5e-3, .loss = 5e-3, .update = 2e-2};
    default:
      return {};  // Integers are equal or not.
  }
}

StepComparison::StepComparison(const DeviceJob& spec, const ParameterStore& parameters,
                               const ParameterOptimizer& optimizer)
    : spec_(spec), parameters_(parameters), optimizer_(optimizer) {
  if (spec.torch_device == "cpu") return;
  const auto& nodes = spec.graph->nodes();
  rounds_more_ = std::any_of(nodes.begin(), nodes.end(), [](const Node& node) {
    return absl::StrContains(node.target, "conv");
  });
}

Tolerance StepComparison::ToleranceIn(DType dtype) const {
  if (!IsFloating(dtype)) return {};
  Tolerance tolerance = ToleranceOf(ComputeType(spec_.training.precision, dtype));
  // TF32 has as many bits as float16.
  if (rounds_more_ && dtype == DType::kFloat32 && spec_.training.precision == Precision::kGraph)
    tolerance = ToleranceOf(DType::kFloat16);
  tolerance.update = ToleranceOf(dtype).update;
  return tolerance;
}

absl::Status StepComparison::BeginStep(int64_t step) {
  ASSIGN_OR_RETURN(record_, StepRecord::Open(spec_.records.output_path, step));
  gradients_.assign(spec_.graph->parameters().size(), std::nullopt);
  state_.clear();
  optimizer_state_.clear();
  return absl::OkStatus();
}

std::vector<StepComparison::Recorded> StepComparison::Find(const std::string& parameter,
                                                           const NameOf& name_of) const {
  std::vector<Recorded> found;
  for (const StepRecord::Copy& copy : record_->Find(name_of(parameter)))
    found.push_back({copy.device, {copy.tensor}});
  if (!found.empty()) return found;
  const auto slices = record_->FindSlices(parameter, name_of);
  size_t copies = 0;
  for (const auto& slice : slices) {
    if (slice.empty()) return {};
    copies = std::max(copies, slice.size());
  }
  for (size_t i = 0; i < copies; ++i) {  // Each copy of each slice is in one of them.
    Recorded recorded{slices.front()[std::min(i, slices.front().size() - 1)].device, {}};
    for (const auto& slice : slices)
      recorded.slices.push_back(slice[std::min(i, slice.size() - 1)].tensor);
    found.push_back(std::move(recorded));
  }
  return found;
}

StepComparison::Compared StepComparison::Compare(std::string what, const std::string& parameter,
                                                 const NameOf& name_of, const at::Tensor& own,
                                                 double relative, double floor) {
  Compared compared{std::move(what), std::nullopt, "", relative, floor};
  const std::vector<Recorded> copies = Find(parameter, name_of);
  if (copies.empty()) compared.missing = "under the plan";
  const at::Tensor mine = own.detach().to(at::kCPU).to(at::kDouble).contiguous();
  for (const Recorded& copy : copies) {
    auto read = ReadJoined(copy.slices, mine.sizes());
    const bool in_a_row = read.ok() && read->dim() == 1 && read->numel() == mine.numel();
    if (in_a_row) read = read->reshape(mine.sizes());  // Put together of shares.
    if (read.ok() && read->sizes() != mine.sizes())
      read = absl::DataLossError(
          absl::StrCat("the record of ", compared.what, " has shape ", Describe(*read)));
    if (!read.ok()) {
      failure_.Update(read.status());
      return compared;
    }
    Distance distance{copy.device, {}, 0, 0, 0, 0};
    if (mine.numel() > 0) {
      const at::Tensor recorded = read->to(at::kDouble);
      const at::Tensor same =
          recorded.eq(mine).logical_or(recorded.isnan().logical_and(mine.isnan()));
      const at::Tensor off =
          (recorded - mine).abs().nan_to_num(kInfinity, kInfinity).masked_fill(same, 0);
      const int64_t flat = off.argmax().item<int64_t>();
      distance.index = IndexIn(mine.sizes(), flat);
      distance.recorded = recorded.flatten()[flat].item<double>();
      distance.own = mine.flatten()[flat].item<double>();
      distance.difference = off.flatten()[flat].item<double>();
      distance.largest = mine.abs().nan_to_num(0, 0).max().item<double>();
    }
    if (!compared.distance.has_value() || distance.difference > compared.distance->difference)
      compared.distance = std::move(distance);
  }
  return compared;
}

void StepComparison::OnGradient(ParameterId id, at::Tensor& gradient) {
  const at::NoGradGuard no_grad;
  const Parameter& parameter = spec_.graph->parameter(id);
  const Tolerance tolerance = ToleranceIn(parameter.dtype);
  gradients_[id.index()] =
      Compare(absl::StrCat("the gradient of \"", parameter.name, "\""), parameter.name,
              GradientName, gradient, tolerance.relative, tolerance.floor);
  const std::vector<Recorded> copies = Find(parameter.name, GradientName);
  if (copies.empty()) return;
  const auto recorded = ReadJoined(copies.front().slices, gradient.sizes());
  failure_.Update(recorded.status());
  if (recorded.ok() && recorded->sizes() == gradient.sizes())
    gradient = at::empty_like(gradient).copy_(*recorded);
}

absl::Status StepComparison::CompareState() {
  const at::NoGradGuard no_grad;
  for (ParameterId id : parameters_.ids()) {
    const Parameter& parameter = spec_.graph->parameter(id);
    if (parameter.data.has_value()) continue;  // A constant.
    const Tolerance tolerance = ToleranceIn(parameter.dtype);
    const char* kind = parameter.buffer ? "buffer \"" : "parameter \"";
    state_.push_back(Compare(absl::StrCat(kind, parameter.name, "\""), parameter.name,
                             ParameterName, parameters_[id],
                             parameter.trainable ? tolerance.update : tolerance.relative,
                             parameter.trainable ? 0 : tolerance.floor));
    for (const auto& [name, state] : optimizer_.StateOf(id)) {
      const auto full = [&state_name = name](const std::string& of) {
        return StateName(absl::StrCat(of, ".", state_name));
      };
      optimizer_state_.push_back(
          Compare(absl::StrCat("optimizer state \"", parameter.name, ".", name, "\""),
                  parameter.name, full, state, tolerance.update, 0));
    }
    if (parameter.trainable && !gradients_[id.index()].has_value() &&
        !Find(parameter.name, GradientName).empty()) {
      gradients_[id.index()] = {absl::StrCat("the gradient of \"", parameter.name, "\""),
                                std::nullopt, "on the single device", 0, 0};
    }
  }
  return failure_;
}

absl::Status StepComparison::EndStep(int64_t step, double loss) {
  absl::Status status;
  const absl::Status thrown = Guarded([&] { status = CompareState(); });
  RETURN_IF_ERROR(thrown);
  RETURN_IF_ERROR(status);
  std::vector<const Compared*> all;
  for (const auto& gradient : gradients_) {
    if (gradient.has_value()) all.push_back(&*gradient);
  }
  for (const auto* compared : {&state_, &optimizer_state_}) {
    for (const Compared& one : *compared) all.push_back(&one);
  }
  return Judge(step, loss, all);
}

absl::Status StepComparison::Judge(int64_t step, double loss,
                                   const std::vector<const Compared*>& all) const {
  // The largest entries of all gradients and of all buffers: they scale Compared::floor.
  double largest_gradient = 0, largest_buffer = 0;
  const auto largest = [&](const Compared& one) -> double& {
    return absl::StartsWith(one.what, "the gradient") ? largest_gradient : largest_buffer;
  };
  for (const Compared* one : all) {
    if (one->floor > 0 && one->distance.has_value())
      largest(*one) = std::max(largest(*one), one->distance->largest);
  }
  const Compared* first = nullptr;
  int64_t differing = 0;
  for (const Compared* one : all) {
    if (one->distance.has_value() &&
        one->distance->difference <= one->relative * one->distance->largest +
                                         (one->floor > 0 ? one->floor * largest(*one) : 0))
      continue;
    if (first == nullptr) first = one;
    ++differing;
  }
  const double allowed = ToleranceIn(spec_.graph->meta(*spec_.graph->loss()).dtype).loss;
  const double off = std::abs(record_->loss() - loss) / std::max(std::abs(loss), 0.1);
  const bool both_none = std::isnan(loss) && std::isnan(record_->loss());
  const bool loss_differs = !(off <= allowed) && !both_none && loss != record_->loss();
  if (first == nullptr && !loss_differs) return absl::OkStatus();
  std::string text = absl::StrCat("step ", step, ": ");
  if (first != nullptr && !first->distance.has_value()) {
    absl::StrAppend(&text, first->what, " is missing ", first->missing);
  } else if (first != nullptr) {
    const Distance& d = *first->distance;
    absl::StrAppend(&text, first->what, " differs: at [", absl::StrJoin(d.index, ", "), "] it is ",
                    absl::StrFormat("%.9g", d.recorded), " on device ", d.device.value(),
                    " of the plan and ", absl::StrFormat("%.9g", d.own), " on a single device, ",
                    Percent(d.largest > 0 ? d.difference / d.largest : kInfinity),
                    " of its largest entry apart where ", Percent(first->relative), " is rounding");
  }
  if (first != nullptr)
    absl::StrAppend(&text, "; ", differing, " of ", all.size(), " tensors differ");
  if (loss_differs) {
    absl::StrAppend(&text, first != nullptr ? "; " : "", "the loss is ",
                    absl::StrFormat("%.9g under the plan and %.9g", record_->loss(), loss),
                    " on a single device, ", Percent(off), " apart where ", Percent(allowed),
                    " is rounding");
  }
  return absl::AbortedError(text);
}

}  // namespace stagewright
