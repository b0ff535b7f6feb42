// Runs a target over every file of the folders given, and over every prefix of the small ones: what
// CI does without libFuzzer.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

int main(int argc, char** argv) {
  constexpr size_t kSmall = 400;
  size_t runs = 0;
  for (int i = 1; i < argc; ++i) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const auto& file : files) {
      std::ifstream in(file, std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(in), {}};
      const auto run = [&](size_t size) {
        LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), size);
        ++runs;
      };
      run(bytes.size());
      for (size_t n = 0; n < std::min(bytes.size(), kSmall); ++n) run(n);
    }
  }
  std::cout << runs << " inputs\n";
  return runs > 0 ? 0 : 1;
}
