// Searching again with less memory.
//
// What a search estimates may fall below what the evaluator finds, so that all it proposes needs
// too much. It then searches again as if there were less memory, until a proposal fits.
#pragma once

#include <span>

#include "common/base/status.h"

namespace stagewright {

// Shares of the memory that a search may fill, in the order in which they are tried: the finer, the
// cheaper another search is.
inline constexpr double kPartitionShares[] = {1, 0.97, 0.93, 0.87, 0.8, 0.7, 0.55};
inline constexpr double kDraftShares[] = {1, 0.95, 0.88, 0.78, 0.6};
inline constexpr double kChainShares[] = {1, 0.9, 0.75, 0.55};
inline constexpr double kLoopedShares[] = {1, 0.85, 0.7, 0.5};

// Calls `attempt`, an absl::StatusOr<bool>(double share), with one share after the other while it
// answers true: that less memory may help. Returns its error. An attempt polls the deadline itself.
template <typename Attempt>
absl::Status TryMemoryShares(std::span<const double> shares, const Attempt& attempt) {
  for (double share : shares) {
    ASSIGN_OR_RETURN(const bool less_may_help, attempt(share));
    if (!less_may_help) break;
  }
  return absl::OkStatus();
}

}  // namespace stagewright
