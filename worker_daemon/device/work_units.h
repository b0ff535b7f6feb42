// Small units of work like those of training, for who measures how devices slow each other.
#pragma once

#include <functional>
#include <string>

namespace stagewright {

// On tensors of its own. To be made on the thread that runs it. A product takes a fraction of a
// millisecond on a core, a copy a few.
std::function<void()> MakeProductUnit(const std::string& torch_device);
// Goes over 16 MiB, which caches do not hold.
std::function<void()> MakeCopyUnit(const std::string& torch_device);

}  // namespace stagewright
