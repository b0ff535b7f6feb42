// Graphs from files: those of the repository, and published profiles that stay outside it.
#pragma once

#include "tests/golden/plans/cases.h"

namespace stagewright::golden {

// examples/graphs on Summit nodes, and what the fuzz targets begin with.
Cases ExampleCases();

// Every profile of the folder that SharedGraph() looks into, on uniform clusters.
Cases ProfileCases();

}  // namespace stagewright::golden
