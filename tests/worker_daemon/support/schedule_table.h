// "The loss does not depend on the plan" over schedules, transports, recomputation, replicas and
// micro-batch sizes: combinations, and what each must give.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/strategy/strategy.h"
#include "tests/worker_daemon/support/test_models.h"
#include "tests/worker_daemon/support/transports/transport_factory.h"

namespace stagewright::testing {

// How devices reach each other: near ones and far ones (transports/pair_transport.h).
struct Ways {
  std::string name;  // "LocalTcp"
  TransportFactory near, far;
};

// Every pair of the transports of this build.
std::vector<Ways> AllWays();

struct Combination {
  std::string schedule;
  Ways ways;
  bool recompute = false;
  int replicas = 1;
  // Stages differ in the size of their micro-batches; in schedules that must not, in replicas.
  bool uneven = false;
  std::string model;

  std::string Name() const;
};
std::ostream& operator<<(std::ostream& out, const Combination& combination);

// Each of `schedules` with every pair of transports, and with every choice of recomputation,
// replicas and micro-batches; models in turn.
std::vector<Combination> Combinations(const std::vector<std::string>& schedules);

// Trains with the strategy and expects, to 1e-9, the losses and parameters of one process: those of
// PyTorch, or for a model with dropout of our own engine on one device.
void ExpectTheSameTraining(const Model& model, const Strategy& strategy, const Ways& ways);

}  // namespace stagewright::testing
