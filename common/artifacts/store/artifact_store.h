// Where artifacts are kept: named objects that are written whole or not at all. What they hold is
// not trusted: readers know the hash of each.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace stagewright {

// Whether whoever waits has given up; asked now and then, from any thread. Null: never.
using GivenUp = std::function<bool()>;

// Safe from any thread. Keys are made by artifact.h: hexadecimal digits and the names of objects,
// with a slash between them. Errors name the store: NOT_FOUND if there is no such object,
// PERMISSION_DENIED if it may not be had, UNAVAILABLE if it cannot be reached or the disk is full,
// FAILED_PRECONDITION if the store is not set up, CANCELLED once it is given up.
class ArtifactStore {
 public:
  virtual ~ArtifactStore() = default;

  // For people, without secrets: "/mnt/artifacts", "s3://bucket/prefix at https://...".
  virtual const std::string& where() const = 0;
  // DATA_LOSS if it has more than `most` bytes.
  virtual absl::StatusOr<std::string> Read(const std::string& key, size_t most,
                                           const GivenUp& given_up) const = 0;
  virtual absl::StatusOr<bool> Has(const std::string& key) const = 0;
  // What follows `prefix`, which is empty or ends with a slash, in the keys of objects: up to the
  // next slash, and with it where there is one. In the order of bytes, each once; those of others
  // that lie beside artifacts, too. O(objects).
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& prefix) const = 0;
  // In the place of what was there.
  virtual absl::Status Write(const std::string& key, absl::string_view bytes) = 0;
  // It may be gone already.
  virtual absl::Status Remove(const std::string& key) = 0;
};

// Whether a store of that name is a bucket, and no folder.
bool IsBucket(absl::string_view where);

// A folder, or "s3://BUCKET[/PREFIX]" (s3_store.h). INVALID_ARGUMENT if it is neither;
// errors of MakeS3Settings.
absl::StatusOr<std::shared_ptr<ArtifactStore>> OpenArtifactStore(const std::string& where);

}  // namespace stagewright
