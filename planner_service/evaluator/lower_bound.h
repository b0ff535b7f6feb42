// A bound from below on the iteration time of every strategy: how far from the best an answer can
// be.
#pragma once

#include <cstdint>

#include "common/base/units.h"
#include "common/cost/cost_model.h"
#include "common/cost/parameters.h"
#include "common/graph/graph.h"
#include "common/graph/operator_graph.h"
#include "common/topology/cluster.h"

namespace stagewright {

struct BoundOptions {
  // Plain SGD has the least state to hold and to update, so its bound holds for every optimizer.
  Optimizer optimizer = Optimizer::kSgd;
  // For asynchronous strategies: the time per mini-batch of a pipeline that is never flushed.
  bool asynchronous = false;
};

// No strategy that passes Evaluate for this graph, cluster, cost model and mini-batch is faster.
// Scope: all synchronous strategies - any convex stages, any devices for them (several stages on a
// device, replicas, mixed kinds), any micro-batch sizes, any compute order (loops, kFkB, explicit
// orders, backward passes whole or split in two) and recomputation, which only adds work. With
// `asynchronous` the same for pipelines without a flush. Replicated constant nodes are free here.
//
// Notation: B mini-batch, n devices, D(r) the r devices that are fastest for what is asked, f, i,
// w the times of a node's forward pass and of the input and weight half of its backward pass (b =
// i + w whole), u the optimizer's time for its parameters. S is the set of numbers of samples that
// one action can have: the micro-batch size divides B (C4) and is shared by r <= n replicas, so S =
// {floor(d / r), ceil(d / r) : d divides B, 1 <= r <= min(n, d)}. S_v,k leaves out what memory
// forbids on devices of kind k: a forward pass of s samples needs the parameters of v and what v
// saves and works in at once.
//
// Work. A strategy runs every sample through v once, in actions of s_1 + s_2 + ... = B samples. On
//   a device of kind k these take at least c_v,k = min over S_v,k of (f + b)(s) / s a sample,
//   because a compute action takes the sum of its nodes' times; split or recomputed, no less. Every
//   trained parameter is updated on at least one device. A device computes one action at a time, so
//   for any weights y_k >= 0 of its devices with sum over devices 1 the step lasts at least the sum
//   over nodes of min_k y_k B c_v,k + sum over parameters of min_k y_k u_p,k (weak duality of the
//   linear program that shares the work out). With one kind this is work over devices; with more,
//   a search over y finds good weights, and any weights give a bound.
//
// Fill. Take a node v and one of the devices that run it. Let head(v) be the longest path of
//   forward passes into v, without v. Its part of any action of that device starts after head(v):
//   an ancestor of another stage has finished its action; one of the same stage takes its part of
//   the same action, since stages are convex. Let tail(v) be the longest way back: along edges that
//   return a gradient, the input halves of ancestors, and at the end the weight half and the update
//   of the last. After v's part of the device's last backward pass (the input half, if split) all
//   of it is still to come, for the same samples. So the device has at most T - head(v) - tail(v)
//   for the forward and input parts of v, and T - head(v) - u for all of it.
//
// Node. v's stage has r replicas for some r <= min(n, B). Together they need B samples' worth of v,
//   so with h = head(v) and rates 1 / c summed over the r fastest devices
//     T >= h + max(B / rate_r(f + b) + allreduce(r) + u, B / rate_r(f + i) + tail(v)).
//   The sum of gradients over r replicas waits for the last of them and moves 2 (r - 1) / r of
//   their bytes over links no faster than the fastest route, in at least ceil(log2 r) hops: true of
//   rings, trees and hierarchies of rings. The bound takes the best r.
//
// Path. One sample there and back: head(v) + f + i + max(w + u, tail(v)) with the least time of one
//   action each.
//
// Asynchronous. Work holds per mini-batch: the pipeline cannot finish more than it works off. Node
//   holds without head and tail, and with the maximum of work and sums, which overlap. Path does
//   not hold.
//
// In nanoseconds, rounded down. O(nodes * (|S| * kinds + n) + edges + n^2).
struct BoundParts {
  Nanos work = 0;
  Nanos node = 0;
  Nanos path = 0;  // 0 where strategies are asynchronous, and so on.
  Nanos joint = 0;
  Nanos join = 0;
  Nanos Largest() const;
};
BoundParts BoundPartsOf(const Graph& graph, const OperatorGraph& operators, const Cluster& cluster,
                        const CostModel& costs, int64_t mini_batch,
                        const BoundOptions& options = {});

Nanos LowerBound(const Graph& graph, const OperatorGraph& operators, const Cluster& cluster,
                 const CostModel& costs, int64_t mini_batch, const BoundOptions& options = {});

}  // namespace stagewright
