// Measures what a device sends and computes, as jobs do it: messages go over the job's transport,
// and who waits for them polls briefly and then sleeps, as the engine does.
//
// All devices of a probe call the same function at about the same time, each with its own
// transport, which is connected to the others. They keep in step by messages alone. A deadline that
// passes, or a peer that is lost, aborts the transport.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/units.h"
#include "worker_daemon/transport/transport.h"

namespace stagewright {

struct MessageTime {
  Bytes size = 0;
  Nanos time = 0;
};

// Messages from this device to `peer`: of every size the first quartile of several, by ascending
// size. Two devices take turns; the one with the smaller number begins. A time is that of the
// message and an empty answer, less that of an empty answer. Receivers sleep when a message comes,
// so that waking them counts. Moves about 9 MB both ways.
absl::StatusOr<std::vector<MessageTime>> ProbeLink(Transport& self, int peer, absl::Time deadline);

// Units of work, of a fraction of a millisecond each, on the device of the calling thread.
struct WorkUnits {
  std::function<void()> product;  // Matrix products from the caches.
  std::function<void()> copy;     // A copy that the caches do not hold.
};

// What this device does while all others of the probe do the same.
struct CrowdTimes {
  Nanos product = 0;      // A unit, of processor time.
  Nanos copy = 0;         // A unit, of processor time.
  double core_share = 0;  // For which part of the products' time the thread had a core.
  Nanos round = 0;        // A unit of products, then a small message to and from every peer.
  Bytes sent = 0;         // While all send at once.
  Nanos sending = 0;      // The time that it took.
  // By how much a message that nobody waits for makes work longer, at each of its ends: a small
  // one, and one of `large_size`.
  Nanos message = 0, large_message = 0;
  Bytes large_size = 0;
  Nanos reduction = 0;  // A hop of an all-reduce of little while all compute.
};

// With no peers, all that needs messages is left out. Takes half a second.
absl::StatusOr<CrowdTimes> ProbeCrowd(Transport& self, const std::vector<int>& peers,
                                      const WorkUnits& work, absl::Time deadline);

}  // namespace stagewright
