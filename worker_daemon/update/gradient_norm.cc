#include "worker_daemon/update/gradient_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "worker_daemon/transport/all_reduce.h"

namespace stagewright {
namespace {

constexpr double kTiny = 1e-6;  // PyTorch's.

double Square(double x) { return x * x; }

// The gradient of a range of a parameter of the store; undefined if there is none.
at::Tensor GradientOf(const ParameterStore& parameters, const ParameterRange& own) {
  const at::Tensor& of_share = parameters.share_gradient(own.id);
  if (of_share.defined()) return of_share;
  const at::Tensor& whole = parameters[own.id].grad();
  if (!whole.defined() || own.size() == whole.numel()) return whole;
  return whole.reshape({-1}).narrow(0, own.begin, own.size());
}

// Calls the function with each gradient that is there, of a parameter or of a share of it.
template <typename Function>
void ForGradients(const ParameterStore& parameters, Function function) {
  for (ParameterId id : parameters.ids()) {
    if (!parameters[id].defined()) continue;
    if (parameters[id].grad().defined()) function(parameters[id].mutable_grad());
    at::Tensor& of_share = parameters.share_gradient(id);
    if (of_share.defined()) function(of_share);
  }
}

}  // namespace

absl::StatusOr<double> ClipGradientNorm(const Reduction& reduction,
                                        const std::vector<ParameterRange>& owned, double max_norm,
                                        const ParameterStore& parameters, Transport* transport,
                                        Tag tag, absl::Time deadline, NonFinite policy, bool finite,
                                        double loss_scale) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> norms;
  double squares = finite ? 0 : std::numeric_limits<double>::quiet_NaN();
  for (const ParameterRange& own : owned) {
    if (!parameters[own.id].defined() || own.size() == 0) continue;
    const at::Tensor gradient = GradientOf(parameters, own);
    if (!gradient.defined()) continue;
    const at::Tensor norm =
        at::linalg_vector_norm(gradient, 2, at::OptionalIntArrayRef(), false, at::kDouble);
    if (norm.is_cpu()) {
      squares += Square(norm.item<double>());
    } else {
      norms.push_back(norm);
    }
  }
  if (!norms.empty()) {
    // Together: the host waits until the accelerator has come to what it reads.
    const at::Tensor read = at::stack(norms).to(at::kCPU);
    for (size_t i = 0; i < norms.size(); ++i) squares += Square(read.data_ptr<double>()[i]);
  }
  if (reduction.devices.size() > 1) {
    std::vector<int> devices;
    for (DeviceId device : reduction.devices) devices.push_back(device.value());
    RETURN_IF_ERROR(
        AllReduceSum(*transport, devices, tag, &squares, 1, Element::kFloat64, deadline));
  }
  const double norm = std::sqrt(squares) / loss_scale;
  if (!std::isfinite(norm) && policy == NonFinite::kStop)
    return absl::FailedPreconditionError(absl::StrCat("the norm of the gradients is ", norm));
  if (!std::isfinite(norm) && policy == NonFinite::kSkip) {
    ForGradients(parameters, [](at::Tensor& gradient) { gradient = at::Tensor(); });
    return norm;
  }
  const double clip = max_norm > 0 ? max_norm / (norm + kTiny) : 1;
  const double factor = (clip >= 1 ? 1 : clip) / loss_scale;  // Not a number if the norm is none.
  if (factor == 1) return norm;
  ForGradients(parameters, [&](at::Tensor& gradient) { gradient.mul_(factor); });
  return norm;
}

}  // namespace stagewright
