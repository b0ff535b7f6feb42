#include "worker_daemon/torch/autocast.h"

#include <ATen/autocast_mode.h>

#include "common/training/autocast.h"
#include "worker_daemon/torch/tensor_types.h"

namespace stagewright {

AutocastScope::AutocastScope(at::DeviceType device, Precision precision)
    : device_(device), active_(IsMixed(precision)) {
  if (!active_) return;
  enabled_ = at::autocast::is_autocast_enabled(device_);
  dtype_ = at::autocast::get_autocast_dtype(device_);
  cache_ = at::autocast::is_autocast_cache_enabled();
  at::autocast::set_autocast_dtype(device_, ToScalarType(SmallerType(precision)));
  at::autocast::set_autocast_cache_enabled(false);
  at::autocast::set_autocast_enabled(device_, true);
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  at::autocast::set_autocast_enabled(device_, enabled_);
  at::autocast::set_autocast_dtype(device_, dtype_);
  at::autocast::set_autocast_cache_enabled(cache_);
}

}  // namespace stagewright
