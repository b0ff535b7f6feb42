// Drives a program's cursors with random delays: neither a clock nor an effect, only order.
#pragma once

#include <cstdint>
#include <vector>

#include "common/program/program.h"
#include "common/program/trace.h"
#include "tests/support/random.h"

namespace stagewright::testing {

struct FakeRun {
  bool done = false;              // Every device finished: no deadlock.
  std::vector<TraceEvent> trace;  // By end.
  // By stage: most samples forwarded, over all replicas, and not yet backwarded.
  std::vector<int64_t> most_in_flight;
  std::vector<Bytes> memory_left;  // By row, at the end.
};

// Actions start up to `longest` after they may and take 1 to `longest`. A transfer takes place once
// both ends have started, an all-reduce once all devices have.
FakeRun RunWithRandomDelays(const Program& program, Rng& rng, Nanos longest);

}  // namespace stagewright::testing
