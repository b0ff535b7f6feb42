#include "common/artifacts/tensor_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/str_format.h"
#include "common/data/safetensors.h"
#include "tests/common/artifacts/stored_files.h"

namespace stagewright {
namespace {

using namespace testing;  // NOLINT
using ::testing::HasSubstr;

std::vector<float> Numbers(size_t count, float from) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), from);
  return numbers;
}

// Tensors "a" to "f" of 100 numbers, some chunks each, with an empty one and a small one.
struct Weights {
  StoredFiles files;
  std::map<std::string, std::vector<float>> tensors;
  std::string name;

  Weights() {
    std::vector<TensorView> views;
    for (int i = 0; i < 6; ++i)
      tensors[std::string(1, static_cast<char>('a' + i))] = Numbers(100, 1000.0f * i);
    tensors["none"] = {};
    tensors["one"] = {1};
    for (const auto& [tensor, values] : tensors) {
      views.push_back(View(tensor, DType::kFloat32, {static_cast<int64_t>(values.size())}, values));
    }
    const std::string path = files.directory.File("weights.safetensors");
    EXPECT_TRUE(WriteSafetensors(path, views, {{"format", "pt"}}).ok());
    name = files.Put(ReadText(path));
  }
};

TEST(TensorPart, HoldsTheTensorsOfItsNamesAndNoOther) {
  Weights weights;
  const auto artifact = Artifact::Open(weights.files.store, nullptr, weights.name);
  const auto header = ReadHeader(*artifact);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->path, weights.name);
  EXPECT_EQ(header->tensors.size(), 8u);
  for (const std::set<std::string>& names : {std::set<std::string>{"b"},
                                             {"a", "f"},
                                             {"none", "one", "c"},
                                             {},
                                             {"nowhere", "d"},
                                             {"a", "b", "c", "d", "e", "f", "none", "one"}}) {
    const auto part =
        TensorPart::Fetch(*artifact, *header, names, weights.files.directory.File("parts"));
    ASSERT_TRUE(part.ok()) << part.status();
    const auto file = SafetensorsFile::Open(part->path());
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->tensors().size(), names.size() - names.count("nowhere"));
    EXPECT_EQ(file->metadata().at("format"), "pt");
    for (const TensorView& tensor : file->tensors()) {
      EXPECT_EQ(names.count(tensor.name), 1u);
      EXPECT_EQ(Values<float>(tensor), weights.tensors.at(tensor.name));
    }
  }
}

TEST(TensorPart, FetchesTheChunksOfItsTensorsOnly) {
  Weights weights;
  const auto artifact = Artifact::Open(weights.files.store, nullptr, weights.name);
  const auto header = ReadHeader(*artifact);
  const uint64_t before = artifact->fetched_bytes();
  const auto part =
      TensorPart::Fetch(*artifact, *header, {"c"}, weights.files.directory.File("parts"));
  ASSERT_TRUE(part.ok());
  // 400 bytes in chunks of 100, of which the first and the last may hold others' bytes.
  EXPECT_GE(artifact->fetched_bytes() - before, 400u);
  EXPECT_LE(artifact->fetched_bytes() - before, 500u);
}

TEST(TensorPart, TellsHowFarItIs) {
  Weights weights;
  const auto artifact = Artifact::Open(weights.files.store, nullptr, weights.name);
  const auto header = ReadHeader(*artifact);
  std::mutex mutex;
  std::set<uint64_t> told;
  uint64_t total = 0;
  const auto part = TensorPart::Fetch(*artifact, *header, {"c"}, weights.files.directory.File("p"),
                                      [&](uint64_t fetched, uint64_t all) {
                                        const std::lock_guard<std::mutex> lock(mutex);
                                        told.insert(fetched);
                                        total = all;
                                      });
  ASSERT_TRUE(part.ok());
  EXPECT_GE(told.size(), 4u) << "as many chunks of 100 bytes";
  EXPECT_EQ(*told.rbegin(), total);
  EXPECT_GE(total, 400u);
  EXPECT_LE(total, 500u);
}

TEST(TensorPart, GoesWithWhoUsesIt) {
  Weights weights;
  const auto artifact = Artifact::Open(weights.files.store, nullptr, weights.name);
  const auto header = ReadHeader(*artifact);
  const std::string folder = weights.files.directory.File("parts");
  std::optional<SafetensorsFile> file;
  {
    const auto part = TensorPart::Fetch(*artifact, *header, {"e"}, folder);
    file.emplace(*SafetensorsFile::Open(part->path()));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  EXPECT_EQ(Values<float>(*file->Find("e")), weights.tensors.at("e"));
}

TEST(TensorPart, DamageElsewhereDoesNoHarm) {
  Weights weights;
  const auto artifact = Artifact::Open(weights.files.store, nullptr, weights.name);
  const auto header = ReadHeader(*artifact);
  const SafetensorsEntry* c = header->Find("c");
  const uint64_t middle = header->bytes + (c->begin + c->end) / 2;
  WriteText(weights.files.ObjectOf(weights.name, absl::StrFormat("chunk-%06d", middle / 100)), "");
  const std::string folder = weights.files.directory.File("parts");
  const absl::Status damaged = TensorPart::Fetch(*artifact, *header, {"c"}, folder).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.message()), HasSubstr(weights.name));
  EXPECT_TRUE(TensorPart::Fetch(*artifact, *header, {"f"}, folder).ok());
}

TEST(TensorPart, OtherFilesAreNoWeights) {
  StoredFiles files;
  const std::string name = files.Put(SomeText(300));
  const auto header = ReadHeader(*Artifact::Open(files.store, nullptr, name));
  EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(header.status().message()), HasSubstr(name));
}

}  // namespace
}  // namespace stagewright
