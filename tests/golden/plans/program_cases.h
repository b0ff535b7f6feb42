// Sixty random strategies of twelve kinds: the programs they are lowered to, and the order in which
// the simulator runs them.
#pragma once

#include "tests/golden/plans/cases.h"

namespace stagewright::golden {

Cases ProgramCases();

}  // namespace stagewright::golden
