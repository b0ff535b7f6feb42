// Clusters of tests: equal devices, or random ones.
#pragma once

#include <cstdint>

#include "common/base/units.h"
#include "common/topology/cluster.h"
#include "tests/support/random.h"

namespace stagewright::testing {

// `size` devices of one kind ("test", 1 TFLOP/s, 1 TB/s, no launch overhead), each with its own
// port of this rate.
Cluster FlatCluster(int32_t size, Bytes memory = 16 * kGiB, Nanos latency = 0,
                    double bytes_per_second = 1e9);

// A cluster of `size` devices "d0", "d1", ...
Cluster TestCluster(int32_t size);

// 1 to `most` devices of one or two kinds in one or more nodes that share uplinks.
Cluster RandomCluster(Rng& rng, int32_t most);

}  // namespace stagewright::testing
