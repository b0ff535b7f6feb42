// Headers of .safetensors files. Tensors of what is accepted lie in the file, one after the other,
// and a header that is written of them reads as the same.
#include <algorithm>
#include <cstring>

#include "common/data/safetensors_header.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

absl::StatusOr<stagewright::SafetensorsHeader> Read(std::string_view bytes, uint64_t size) {
  return stagewright::ReadSafetensorsHeader(
      "file", size, [&](uint64_t offset, std::span<std::byte> out) {
        if (offset + out.size() > size) stagewright::fuzz::Fail("reads beyond the file");
        std::fill(out.begin(), out.end(), std::byte{0});
        const size_t here = offset < bytes.size() ? bytes.size() - offset : 0;
        if (here > 0) std::memcpy(out.data(), bytes.data() + offset, std::min(here, out.size()));
        return absl::OkStatus();
      });
}

}  // namespace

// The first byte says how many KiB the file is longer than the rest.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  if (size == 0) return 0;
  const std::string_view bytes = fuzz::Text(data + 1, size - 1);
  const uint64_t whole = bytes.size() + uint64_t{1024} * data[0];
  const auto header = Read(bytes, whole);
  fuzz::CheckRefusal(header.status());
  if (!header.ok()) return 0;
  std::vector<SafetensorsEntry> tensors = header->tensors;
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::make_pair(a.begin, a.end) < std::make_pair(b.begin, b.end);
  });
  uint64_t end = 0;
  for (const SafetensorsEntry& tensor : tensors) {
    if (tensor.begin != end || tensor.end < end) fuzz::Fail("tensors with a gap or an overlap");
    end = tensor.end;
  }
  if (header->bytes + end != whole) fuzz::Fail("tensors that do not fill the file");
  const std::string text = SafetensorsHeaderText(tensors, header->metadata);
  const auto again = Read(text, text.size() + end);
  if (!again.ok()) fuzz::Fail("does not read its own: " + again.status().ToString());
  if (again->tensors.size() != tensors.size() || again->metadata != header->metadata)
    fuzz::Fail("reads something else than it wrote");
  return 0;
}
