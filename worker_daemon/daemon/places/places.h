// Where a worker's jobs may read and write.
#pragma once

#include "common/artifacts/artifacts.h"
#include "worker_daemon/data/path_roots.h"

namespace stagewright {

struct Places {
  PathRoots roots;
  Artifacts artifacts;
};

}  // namespace stagewright
