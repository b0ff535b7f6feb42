// CHECK ends the process with a message: for bugs only, never for input.
#pragma once

#include <cstdio>
#include <cstdlib>

// LibTorch's logging has a macro of the same name and meaning.
#ifdef CHECK
#undef CHECK
#endif
#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)
