// Manifests of checkpoints, as somebody may have left them in a directory. What is accepted is read
// again as it was written.
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/fuzz/fuzz_target.h"
#include "worker_daemon/checkpoint/manifest.h"

namespace {

std::string MakeFolder() {
  std::string pattern = std::filesystem::temp_directory_path() / "manifest_fuzz_XXXXXX";
  return mkdtemp(pattern.data());
}

struct Folder {
  ~Folder() { std::filesystem::remove_all(path); }
  const std::string path = MakeFolder();
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  static const Folder folder;
  const std::string file = folder.path + "/" + kManifestName;
  std::filesystem::remove(file);  // To overwrite one may mean waiting for the disk.
  std::ofstream(file, std::ios::binary) << fuzz::Text(data, size);
  const auto manifest = ReadManifest(folder.path);
  fuzz::CheckRefusal(manifest.status());
  if (!manifest.ok()) return 0;
  if (!WriteManifest(folder.path, *manifest).ok()) fuzz::Fail("cannot be written");
  const auto again = ReadManifest(folder.path);
  if (!again.ok()) fuzz::Fail("does not read its own: " + again.status().ToString());
  if (again->step != manifest->step || again->weight_map != manifest->weight_map ||
      again->files.size() != manifest->files.size() ||
      again->slices.size() != manifest->slices.size())
    fuzz::Fail("reads something else than it wrote");
  return 0;
}
