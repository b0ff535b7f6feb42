// Files of NumPy. The array of what is accepted is the end of the file, and as long as its shape
// says.
#include <sys/mman.h>
#include <unistd.h>

#include "common/data/npy.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  static const int file = memfd_create("npy", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size))
    fuzz::Fail("no file");
  const auto npy = NpyFile::Open(path);
  fuzz::CheckRefusal(npy.status());
  if (!npy.ok()) return 0;
  uint64_t bytes = static_cast<uint64_t>(SizeOf(npy->array.dtype));
  for (const int64_t extent : npy->array.shape) bytes *= static_cast<uint64_t>(extent);
  if (bytes != npy->array.data.size() || bytes > size) fuzz::Fail("an array of another size");
  return 0;
}
