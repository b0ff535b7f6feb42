// A job of one linear layer on one device, as a planner has it prepared.
#pragma once

#include <string>
#include <vector>

#include "stagewright/v1/worker_service.pb.h"

namespace stagewright::testing {

// Generation 3 of jobs/1, with a stage on each of these devices, at most two: two steps of four
// samples of an input "x" of three numbers. Writes the weights; the paths of data are for the test
// to set. `stem` begins the names of files.
v1::Prepare SmallJob(const std::string& stem, const std::vector<std::string>& devices);

}  // namespace stagewright::testing
