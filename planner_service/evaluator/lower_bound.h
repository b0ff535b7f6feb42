// A bound from below on the iteration time of every strategy: how far from the best an answer can
// be.
#pragma once

#include <cstdint>

#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"
#include "common/topology/cluster.h"

namespace stagewright {

// No strategy that passes Evaluate for this graph, cluster, cost model and mini-batch is faster,
// whatever its stages, replicas and micro-batch sizes. Replicated constant nodes are free here.
//
// Notation: B mini-batch, n devices, f_v(s) and b_v(s) forward and backward time of node v for s
// samples on its fastest kind of device, S the numbers of samples that one action can have: the
// micro-batch size divides B (C4) and is shared by r <= n replicas, so S = {floor(d / r),
// ceil(d / r) : d divides B, 1 <= r <= min(n, d)}.
//
// The bound is the largest of three:
//   Work. A strategy runs every sample through v once, in actions of s_1 + s_2 + ... = B samples,
//     s_i in S. With c_v = min over S of (f_v(s) + b_v(s)) / s, these actions take at least B c_v,
//     because a compute action takes the sum of its nodes' times. A device computes one action at
//     a time, so the step lasts at least B / n * sum of c_v.
//   Path. Take one sample and a path v_1 ... v_k. Its forward through v_i+1 is in the same action
//     as through v_i or in one that waits for it, so the forward passes along the path take
//     F >= sum of min f_v. If, over a suffix v_j ... v_k, each edge carries a tensor whose gradient
//     comes back, the backward passes follow in reverse order, each after the forward of v_k:
//     together at least F + sum over the suffix of min b_v.
//   Node. If v's stage has r replicas, one of them works on v for at least B / r * c_v. If v has
//     trainable parameters and r > 1, their gradients are then summed: a ring all-reduce over r
//     or more devices, which takes no less than one over r devices joined by the fastest route of
//     the cluster. The bound takes the best r.
//
// In nanoseconds, rounded down. O(nodes * |S| * kinds + edges + n^2).
Nanos LowerBound(const Graph& graph, const OperatorGraph& operators, const Cluster& cluster,
                 const CostModel& costs, int64_t mini_batch);

}  // namespace stagewright
