// Sums over devices, in place, and the two halves of them: reduce-scatter and all-gather.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

// Replaces the `count` elements at `data` by the sums of the elements at the same places on all
// `devices`, which include this one. Blocks. Every device of the list calls it with the same list,
// count, element and tag, and is connected to the others.
//
// A ring: each device sends and receives 2 (n-1) / n of the data, in 2 (n-1) steps (reduce-scatter,
// then all-gather; Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", 2009). Additions overlap with transfers, segment by segment. Needs scratch memory
// of 2/n of the data.
//
// A transport that reduces() does all of this itself, in its own way and memory: NCCL, on the
// accelerator. What follows holds for it as well, but for how 16-bit elements are rounded.
//
// The result is the same to the bit on all devices and in every run: each element is added up in
// one order that depends on its place and the list only. 16-bit elements are added as float and
// rounded (to nearest, ties to even) after each addition.
//
// All messages carry `tag`; all-reduces that run at the same time between the same devices need
// different ones.
//
// On any error `transport` is aborted, since what its peers hold is then incomplete; on return no
// transfer touches `data`, whose content is undefined.
// Errors: INVALID_ARGUMENT (a device twice, or this one missing; nothing is aborted);
// DEADLINE_EXCEEDED; UNAVAILABLE naming a lost peer; what Abort was called with.
absl::Status AllReduceSum(Transport& transport, const std::vector<int>& devices, Tag tag,
                          void* data, size_t count, Element element, absl::Time deadline);

// Half of it: of the `count` elements, as many equal chunks as there are devices, that one is
// summed on each device which has its place in the list; the others are undefined afterwards. In
// size - 1 steps of the ring. REQUIRES: count is a multiple of the number of devices. All else as
// for AllReduceSum.
absl::Status ReduceScatterSum(Transport& transport, const std::vector<int>& devices, Tag tag,
                              void* data, size_t count, Element element, absl::Time deadline);

// The other half: every device gives the chunk that has its place in the list, and gets those of
// the others.
absl::Status AllGather(Transport& transport, const std::vector<int>& devices, Tag tag, void* data,
                       size_t count, Element element, absl::Time deadline);

}  // namespace stagewright
