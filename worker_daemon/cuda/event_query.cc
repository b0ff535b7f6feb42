#include "worker_daemon/cuda/event_query.h"

namespace stagewright {

cudaError_t QueryEvent(cudaEvent_t event) {
  const cudaError_t state = cudaEventQuery(event);
  if (state == cudaErrorNotReady) static_cast<void>(cudaGetLastError());
  return state;
}

}  // namespace stagewright
