// Manifests of artifacts. Chunks of what is accepted make up its size, and it is read again as it
// was written.
#include "common/artifacts/manifest.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  const std::string text(fuzz::Text(data, size));
  const auto manifest = ParseManifest(text);
  fuzz::CheckRefusal(manifest.status());
  if (!manifest.ok()) return 0;
  const std::string written = ToText(*manifest);
  const auto again = ParseManifest(written);
  if (!again.ok()) fuzz::Fail("does not read its own: " + again.status().ToString());
  if (ToText(*again) != written) fuzz::Fail("reads something else than it wrote");
  uint64_t sum = 0;
  for (size_t i = 0; i < manifest->chunks.size(); ++i) {
    if (manifest->BytesOf(i) == 0 || manifest->BytesOf(i) > kMostChunkBytes)
      fuzz::Fail("a chunk that is empty or too long");
    sum += manifest->BytesOf(i);
  }
  if (sum != manifest->size) fuzz::Fail("chunks that do not make up the size");
  return 0;
}
