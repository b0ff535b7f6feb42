// What is wrong with the files of a job, told before it is submitted.
#pragma once

#include "common/artifacts/artifacts.h"
#include "common/base/status.h"
#include "common/graph/graph.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright::cli {

// The error that a worker would find, naming file, tensor, sample and value: a tensor that is
// missing or of another type or shape than the graph says; inputs with different numbers of
// samples, or fewer than a mini-batch; an index that no operator takes; a number that is none and
// would end the job. Of each input, samples of up to a gibibyte are read. Files that are not on
// this machine, or may not be read here, are left to the workers, and so are weights that are an
// artifact where `artifacts` has no store.
absl::Status CheckFiles(const Graph& graph, const v1::JobSpec& spec, const Artifacts& artifacts);

}  // namespace stagewright::cli
