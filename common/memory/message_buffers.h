// Memory for messages between devices. A worker keeps the buffers of messages that have been used
// up for later ones (worker_daemon/messages/buffer_pool.h), so that what it holds is what its
// program needs at most of each size.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/base/ids.h"
#include "common/base/units.h"
#include "common/graph/graph.h"
#include "common/program/program.h"
#include "common/training/autocast.h"

namespace stagewright {

// Every value of a message begins at a multiple of this.
inline constexpr Bytes kMessageAlignment = 16;

// The size of a message with `values`, in this order, for `samples` samples; 0 for none.
Bytes MessageBytes(const MessageTypes& types, const std::vector<ValueRef>& values, int64_t samples);

// Whether a sender copies the values into one buffer. A value that is a tensor of its own, of the
// message's type, is sent from where it is.
bool IsPacked(const MessageTypes& types, const std::vector<ValueRef>& values);

// How many buffers of which size a device holds at a time: of received messages from when they are
// posted to the end of the last pass over their samples, or of the next pass if that joins them
// with others, and one of each lane of sends that are packed. Messages of no bytes are left out.
// O(n log n) in actions.
std::map<Bytes, int32_t> MessageBuffers(const MessageTypes& types, const Program& program,
                                        const DeviceProgram& device);

// All of them together; 0 for a planning-only graph, which nobody runs.
Bytes BufferBytes(const MessageTypes& types, const Program& program, const DeviceProgram& device);

}  // namespace stagewright
