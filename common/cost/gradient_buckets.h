// How the gradients of a replicated stage are summed while its last backward pass still makes
// others: in buckets, in the order in which that pass completes them, one sum after the other.
//
// A backward pass goes through the nodes from the last to the first. A bucket is the gradients that
// are complete when it has done so up to one of them, its mark. Buckets are judged by their cost:
//
//   what is left of the n sums when the pass ends + (n - 1) latencies,
//
// where the latencies stand for what sums of other stages wait longer for. All buckets begin with
// about equally many bytes: those of the whole divided by 1, 2, 4, ..., 64. Then the last one,
// which nothing hides, and the first one, before which no sum runs, are halved as long as that
// lowers the cost. The cheapest are taken. Of sums of time T and latency L that are hidden but for
// the last, n equal ones cost about T / n + n L, least where each takes the geometric mean of L and
// T: long against the one and short against the other; a halved last bucket ends at about 2 L. n =
// 1 is a sum after the pass, so that buckets are never the slower way.
//
// Nodes are numbered in the order of their forward pass; searches count operators instead. Times in
// ns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/units.h"
#include "common/cost/collectives.h"

namespace stagewright {

// The gradients of the nodes from `mark` up to the mark of the bucket before.
struct GradientBucket {
  int32_t mark = 0;
  Bytes bytes = 0;
  friend bool operator==(const GradientBucket&, const GradientBucket&) = default;
};

// What a backward pass has still to do when it reaches the mark of each node: the backward times of
// the nodes before it. O(n).
std::vector<double> TimeLeftAt(std::span<const double> backward);

// Cuts gradients, given by the node that completes them, into buckets of at least `bucket_bytes`;
// the last may have less. O(n).
std::vector<GradientBucket> CutGradients(std::span<const Bytes> gradients, Bytes bucket_bytes);

// From the end of the last backward pass to the end of the last sum. One bucket is summed after the
// pass. O(buckets).
double ExposedSums(const std::vector<GradientBucket>& buckets, std::span<const double> left,
                   const AllReduceLines& sums);

// The same to the end of the last optimizer step: what is summed before the last bucket is updated
// while that is (lower.h). `step`: the time that updating all takes.
double UpdateTail(const std::vector<GradientBucket>& buckets, std::span<const double> left,
                  const AllReduceLines& sums, double step);

// The cheapest buckets, as above, or with `bucket_bytes` those of CutGradients. Empty if there is
// nothing to sum. O(n).
std::vector<GradientBucket> BestBuckets(std::span<const Bytes> gradients,
                                        std::span<const double> left, const AllReduceLines& sums,
                                        Bytes bucket_bytes = 0);

}  // namespace stagewright
