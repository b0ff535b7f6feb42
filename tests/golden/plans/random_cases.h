// Two hundred random graphs on random clusters of 2 to 64 devices, with one of nine sets of options
// each.
#pragma once

#include "tests/golden/plans/cases.h"

namespace stagewright::golden {

Cases RandomCases();

}  // namespace stagewright::golden
