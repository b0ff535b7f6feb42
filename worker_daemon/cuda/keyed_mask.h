// Masks of random numbers, drawn on a GPU.
#pragma once

#include <cstdint>
#include <span>

namespace stagewright {

// Queues on `stream`, a cudaStream_t of the GPU that is this thread's, that `kept` becomes whether
// each of the first `row` numbers (keyed_numbers.h) of each key is at least `least`: keys.size()
// rows in the GPU's memory. The keys travel with the launches, one for each 256 of them. False if
// CUDA takes a launch for impossible: its last error says why.
bool QueueKeyedMask(std::span<const uint64_t> keys, int64_t row, uint64_t least, bool* kept,
                    void* stream);

}  // namespace stagewright
