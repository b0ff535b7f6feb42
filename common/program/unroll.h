// An asynchronous program written out for a number of steps.
#pragma once

#include "common/program/program.h"

namespace stagewright {

// Whether the program is asynchronous and not yet unrolled.
bool HasSections(const Program& program);

// The program of `steps` steps as one body over steps * mini_batch samples: prologue, steps - 1
// times the body, epilogue, with samples counted through. It is asynchronous, too. Whatever works
// on bodies (Cursor, Validate, Simulate) works on it. REQUIRES: HasSections and steps >= 1.
// O(actions * steps).
Program Unroll(const Program& program, int64_t steps);
DeviceProgram Unroll(const DeviceProgram& device, int64_t mini_batch, int64_t steps);

}  // namespace stagewright
