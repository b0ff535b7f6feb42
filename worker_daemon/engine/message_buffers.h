// How many messages of which size a device holds at a time, as its program says.
#pragma once

#include <cstdint>
#include <map>

#include "common/base/ids.h"
#include "common/base/units.h"
#include "common/graph/graph.h"
#include "common/schedule/program.h"

namespace stagewright {

// By size in bytes: received messages from when they are posted to the end of the last pass of
// their stage over any of their samples, and one of each lane of sends. Messages of no bytes are
// left out. O(actions * micro-batches of a stage).
std::map<Bytes, int32_t> MessageBuffers(const Graph& graph, const Program& program,
                                        const DeviceProgram& device);

}  // namespace stagewright
