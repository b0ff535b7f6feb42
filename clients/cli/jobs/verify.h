// `submit --verify N`: before a job starts, the first steps of its plan are run and compared with
// those of a single device.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

#include "clients/cli/connection.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright::cli {

struct VerifyFlags {
  int64_t steps = 0;  // 0: nothing is verified.
  bool only = false;  // The job itself is not started.
};

// --verify, --verify-only. `flags` outlives the app.
void AddVerifyFlags(CLI::App& command, VerifyFlags& flags);

// Runs two jobs, one after the other: `spec` for its first steps under the plan that it gets, then
// the same on one device with the whole mini-batch at once, which compares each step with what the
// first has recorded (StepRecords). What they write goes to a directory in the job's output
// directory, and is removed as far as it is seen from here. If they agree, `spec` has the plan that
// was verified. Otherwise the message is printed, and the exit code is not kSuccess.
int Verify(Connection& connection, const VerifyFlags& flags, bool json, v1::JobSpec& spec);

}  // namespace stagewright::cli
