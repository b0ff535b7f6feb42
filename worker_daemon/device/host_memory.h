// How this process holds memory that nobody uses.
#pragma once

namespace stagewright {

// From now on the heap keeps what is freed instead of handing it back to the system: a step frees
// and takes again as much as a model's activations and gradients, and each page that comes back
// from the system costs a fault and is cleared. One heap for all threads, so that what one frees
// another can use. Call it once, before there are threads.
void KeepFreedHostMemory();

// Hands what is free back to the system and to the GPUs, as at the end of a job: other processes
// may want it.
void ReleaseFreedMemory();

}  // namespace stagewright
