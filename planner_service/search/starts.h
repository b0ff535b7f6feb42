// Drafts that a local search starts from: loops on DAG stages.
//
// The series-parallel tree of the operators is laid out over groups of devices (each group runs its
// stages with one replica per device):
//   - A chain is cut into slices of about equal time, a few per group (loops), dealt to the groups
//     in turn, or there and back (V).
//   - Branches that run at the same time get groups of their own, as many as their share of the
//     work, where there are at least as many groups as branches. Where there are fewer, the
//     branches in a row are cut where a group has its share, so that a group runs a few branches
//     and pieces of at most two.
//   - Single heavy operators are placed first and the rest fills the groups up to equal load. What
//     all branches share is also tried on all devices, and on one device of every node: apart from
//     the groups, or beside what these run there. Then branches that are heavy have as many groups
//     each, and light ones single devices of their own, where replicas would cost more than they
//     save. If asked for, devices that are too few for one more group are a smaller one.
//   - Branches are also packed on the devices by size (branches/packed_devices.h); on many devices
//     each part has some of its own instead (branches/own_devices.h).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "planner_service/models/draft.h"
#include "planner_service/models/operator_costs.h"

namespace stagewright {

// Drafts for the kind with at most so many micro-batches, in a fixed order, equal ones once; some
// may be too large for the memory. Stages are sorted. Those found before the context expires.
// `with_rest`: instead those whose groups leave devices over, which are a smaller group then, if
// there are any. O(operators * drafts).
std::vector<Draft> StartDrafts(const OperatorCosts& costs, const PlanOptions& options,
                               StrategyKind kind, const SearchContext& context,
                               int64_t most_micro_batches = std::numeric_limits<int64_t>::max(),
                               bool with_rest = false);

}  // namespace stagewright
