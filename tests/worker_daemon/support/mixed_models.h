// Float32 graphs and jobs for tests of mixed precision.
#pragma once

#include <string>

#include "tests/worker_daemon/support/plans/forced_strategies.h"
#include "tests/worker_daemon/support/runnable_graphs.h"
#include "worker_daemon/executor/device_job.h"

namespace stagewright::testing {

// Turns what is float64 in a graph in the making, and its parameters, into float32.
void ToFloat32(GraphMaker& make);

// A classifier with residual blocks, normalisation, dropout if `dropout`, and a tied weight.
Graph ResidualClassifier(bool dropout);

// Its data and initial weights, `steps` steps of SGD with momentum. Files are named after `stem`.
DeviceJob ClassifierJob(const std::string& stem, bool dropout, int64_t steps);

// Replaces the job's program by that of a random strategy of such a shape.
void UsePlan(DeviceJob& spec, StrategyShape shape, uint64_t seed,
             OptimizerSharding sharding = OptimizerSharding::kNone);

// All on one device, in so many micro-batches.
void UseOneDevice(DeviceJob& spec, int64_t micro_batches = 1);

}  // namespace stagewright::testing
