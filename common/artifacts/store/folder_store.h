// A folder that all who put and get artifacts see: shared, mounted or of one machine. Each object
// is a file, which is there whole or not at all.
#pragma once

#include <string>
#include <vector>

#include "common/artifacts/store/artifact_store.h"

namespace stagewright {

class FolderStore : public ArtifactStore {
 public:
  // Need not be there before the first object is written.
  explicit FolderStore(const std::string& folder);

  const std::string& where() const override { return folder_; }
  absl::StatusOr<std::string> Read(const std::string& key, size_t most,
                                   const GivenUp& given_up) const override;
  absl::StatusOr<bool> Has(const std::string& key) const override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& prefix) const override;
  absl::Status Write(const std::string& key, absl::string_view bytes) override;
  absl::Status Remove(const std::string& key) override;

 private:
  std::string PathOf(const std::string& key) const;
  // UNAVAILABLE if the folder is not there.
  absl::Status CheckMounted() const;

  const std::string folder_;
};

}  // namespace stagewright
