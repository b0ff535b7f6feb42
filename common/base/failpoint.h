// Points at which a program may be made to die, to prove that what is durable before each of them
// is enough to go on from. STAGEWRIGHT_FAILPOINTS=NAME:crash@3 ends the program, as kill -9 would,
// when it comes to NAME for the third time. Builds without assertions have none.
#pragma once

#ifdef NDEBUG
#define STAGEWRIGHT_FAILPOINT(name) static_cast<void>(0)
#else
#define STAGEWRIGHT_FAILPOINT(name) ::stagewright::ReachFailpoint(name)
#endif

namespace stagewright {

// Thread-safe. Aborts if the variable is not as above.
void ReachFailpoint(const char* name);

}  // namespace stagewright
