// Files of settings. What a setting is replaced in is read again with the new value.
#include <algorithm>

#include "common/config/config_file.h"
#include "tests/fuzz/fuzz_target.h"

// The first byte says whether contexts are wanted.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  if (size == 0) return 0;
  const bool with_contexts = data[0] == 'c';
  const std::string text(fuzz::Text(data + 1, size - 1));
  const auto file = ParseConfig("file", text, with_contexts);
  fuzz::CheckRefusal(file.status());
  const auto changed = WithEntry("file", text, "context", "lab");
  fuzz::CheckRefusal(changed.status());
  if (!file.ok() || !changed.ok()) return 0;
  const auto again = ParseConfig("file", *changed, with_contexts);
  if (!again.ok()) fuzz::Fail("does not read its own: " + again.status().ToString());
  const auto entry = std::find_if(again->entries.begin(), again->entries.end(),
                                  [](const ConfigEntry& e) { return e.key == "context"; });
  if (entry == again->entries.end() || entry->values != std::vector<std::string>{"lab"})
    fuzz::Fail("does not say what it was told to");
  return 0;
}
