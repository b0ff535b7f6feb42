// Which GPU CUDA's calls of a thread are for.
#pragma once

namespace stagewright {

// Makes `gpu`, CUDA's index, the one of this thread while it lives. Afterwards that of before is
// again, if this process uses it at all: CUDA takes memory (some 500 MB) on every GPU that a thread
// only chooses, and a thread that never chose one counts as having chosen the first.
class CurrentGpu {
 public:
  explicit CurrentGpu(int gpu);
  ~CurrentGpu();
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  int before_ = 0;
  bool goes_back_ = false;
};

}  // namespace stagewright
