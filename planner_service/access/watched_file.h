// A file that is read again when it has changed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"

namespace stagewright {

// Changes with every change of the file; empty where there is none.
std::string VersionOfFile(const std::string& path);
// The text, without a byte order mark; FAILED_PRECONDITION, beginning with flag and path, if it
// cannot be read or is no regular file: every call would wait for who writes to a FIFO.
absl::StatusOr<std::string> ReadFlagFile(const std::string& flag, const std::string& path);
// Says in the log that a file is wrong, and that what it said before stays valid.
void WarnOfFile(const absl::Status& wrong);

// What the text of a file means. Thread-safe.
template <typename T>
class WatchedFile {
 public:
  using Parse = std::function<absl::StatusOr<T>(absl::string_view text)>;

  // Errors begin with `flag` and the path: FAILED_PRECONDITION if it cannot be read, those of
  // `parse`.
  static absl::StatusOr<std::unique_ptr<WatchedFile>> Open(std::string flag, std::string path,
                                                           Parse parse) {
    std::unique_ptr<WatchedFile> file(
        new WatchedFile(std::move(flag), std::move(path), std::move(parse)));
    absl::MutexLock lock(&file->mutex_);
    RETURN_IF_ERROR(file->Read());
    return file;
  }

  // As the file is now; as it was, while it cannot be read or is wrong, which is said once.
  std::shared_ptr<const T> Get() {
    absl::MutexLock lock(&mutex_);
    if (VersionOfFile(path_) != version_) {
      if (const absl::Status status = Read(); !status.ok()) WarnOfFile(status);
    }
    return meaning_;
  }

 private:
  WatchedFile(std::string flag, std::string path, Parse parse)
      : flag_(std::move(flag)), path_(std::move(path)), parse_(std::move(parse)) {}

  absl::Status Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    version_ = VersionOfFile(path_);
    ASSIGN_OR_RETURN(const std::string text, ReadFlagFile(flag_, path_));
    auto meaning = parse_(text);
    if (!meaning.ok()) return Annotate(meaning.status(), absl::StrCat(flag_, " ", path_));
    meaning_ = std::make_shared<const T>(*std::move(meaning));
    return absl::OkStatus();
  }

  const std::string flag_, path_;
  const Parse parse_;
  absl::Mutex mutex_;
  std::string version_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const T> meaning_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagewright
