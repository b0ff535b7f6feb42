// Graphs from files: those of the repository, and published profiles that stay outside it.
#pragma once

#include "tests/golden/plans/cases.h"

namespace stagewright::golden {

// examples/graphs on Summit nodes, and what the fuzz targets begin with.
Cases ExampleCases();

// Profiles of our own and those published that SharedGraph() finds, on uniform clusters.
Cases ProfileCases();

}  // namespace stagewright::golden
