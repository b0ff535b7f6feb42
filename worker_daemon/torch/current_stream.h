// For who queues on an accelerator beside LibTorch. No LibTorch here.
#pragma once

#include <string>

namespace stagewright {

// What the accelerator's own library calls the stream (CUDA: a cudaStream_t) on which LibTorch
// queues what the calling thread runs on `torch_device` ("cuda:1"). Throws what LibTorch throws.
void* CurrentStream(const std::string& torch_device);

}  // namespace stagewright
