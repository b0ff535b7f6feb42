// A job of one linear layer on one device, as a planner has it prepared.
#pragma once

#include <string>

#include "stagewright/v1/worker_service.pb.h"

namespace stagewright::testing {

// Generation 3 of jobs/1, on the device of this name: two steps of four samples of an input "x" of
// three numbers. Writes the weights; the paths of data are for the test to set. `stem` begins the
// names of files.
v1::Prepare SmallJob(const std::string& stem, const std::string& device);

}  // namespace stagewright::testing
