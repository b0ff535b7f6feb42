#include "common/policies/early_backward.h"

#include <algorithm>

namespace stagewright {

int64_t PaInFlight(int32_t depth, int64_t limit) { return std::min<int64_t>(depth, limit); }

int64_t PbInFlight(int32_t depth, int64_t limit) {
  return std::min<int64_t>(2 * int64_t{depth} - 1, limit);
}

}  // namespace stagewright
