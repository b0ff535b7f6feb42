// Artifacts for tests: files, and folders that hold them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "common/artifacts/store/folder_store.h"
#include "common/artifacts/transfer.h"
#include "tests/common/data/safetensors_files.h"

namespace stagewright::testing {

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A text in which no two chunks are alike.
inline std::string SomeText(size_t size) {
  std::string text;
  for (size_t i = 0; text.size() < size; ++i) text += std::to_string(i) + " ";
  return text.substr(0, size);
}

// A store in a folder, with artifacts of chunks of 100 bytes.
struct StoredFiles {
  TempDirectory directory;
  std::shared_ptr<FolderStore> store = std::make_shared<FolderStore>(directory.File("store"));

  std::string Put(const std::string& text) {
    WriteText(directory.File("put"), text);
    const auto name = PutArtifact(*store, directory.File("put"), /*chunk_bytes=*/100);
    EXPECT_TRUE(name.ok()) << name.status();
    return name.value_or("");
  }
  // The file of an object of an artifact.
  std::string ObjectOf(const std::string& name, const std::string& object) const {
    return directory.File("store") + "/" + name.substr(7) + "/" + object;
  }
};

}  // namespace stagewright::testing
