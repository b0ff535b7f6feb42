// Whether a GPU has come to an event.
#pragma once

#include <cuda_runtime_api.h>

namespace stagewright {

// As cudaEventQuery. That says "not ready" as the last error of the thread too, which whoever
// starts the next kernel would take for the kernel's: it is forgotten here.
cudaError_t QueryEvent(cudaEvent_t event);

}  // namespace stagewright
