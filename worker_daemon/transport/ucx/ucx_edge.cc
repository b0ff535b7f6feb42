#include "worker_daemon/transport/ucx/ucx_edge.h"

#include <algorithm>

namespace stagewright {

absl::Time UcxEdge::due_at() const {
  if (error.has_value()) return absl::InfinitePast();
  absl::Time due = abandon_at.value_or(absl::InfiniteFuture());
  if (endpoint.is_open() && close_at.has_value()) due = std::min(due, *close_at);
  return due;
}

}  // namespace stagewright
