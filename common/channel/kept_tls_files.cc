#include "common/channel/kept_tls_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/text_file.h"
#include "common/log/log.h"

namespace stagewright {
namespace {

using Texts = std::array<std::string, 3>;  // Certificate, key, authorities; empty: not given.

absl::StatusOr<Texts> TextsOf(const TlsFiles& files) {
  Texts texts;
  const std::string* const paths[] = {&files.certificate, &files.key, &files.authorities};
  for (size_t i = 0; i < texts.size(); ++i) {
    if (paths[i]->empty()) continue;
    ASSIGN_OR_RETURN(texts[i], ReadTextFile(*paths[i]));
  }
  return texts;
}

// A file of memory alone: keys come to lie on no disk but their own.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& text) : file_(memfd_create("tls", MFD_CLOEXEC)) {
    if (file_ >= 0 && write(file_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      close(std::exchange(file_, -1));
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() {
    if (file_ >= 0) close(file_);
  }

  std::string path() const { return absl::StrCat("/proc/self/fd/", file_); }
  // Takes the contents of another, at the same path and at once.
  void Become(const MemoryFile& other) const { dup3(other.file_, file_, O_CLOEXEC); }

 private:
  int file_;  // Its descriptor; -1: there is none.
};

// The copy of some files.
class Copy {
 public:
  explicit Copy(const Texts& texts)
      : certificate_(texts[0]),
        key_(texts[1]),
        authorities_(texts[2]),
        paths_{texts[0].empty() ? "" : certificate_.path(), texts[1].empty() ? "" : key_.path(),
               texts[2].empty() ? "" : authorities_.path()} {}

  const TlsFiles& paths() const { return paths_; }
  void Become(const Copy& other) const {
    certificate_.Become(other.certificate_);
    key_.Become(other.key_);
    authorities_.Become(other.authorities_);
  }

 private:
  const MemoryFile certificate_, key_, authorities_;
  const TlsFiles paths_;
};

class Keeper {
 public:
  static Keeper& Get() {
    static Keeper* const keeper = new Keeper;  // Its thread and what gRPC reads outlive `main`.
    return *keeper;
  }

  TlsFiles Keep(const TlsFiles& files, absl::string_view flags) {
    absl::MutexLock lock(&mutex_);
    for (Entry& entry : entries_) {
      if (!Same(entry.files, files)) continue;
      Look(entry);
      return entry.copy->paths();
    }
    auto texts = TextsOf(files);
    if (!texts.ok()) return files;
    auto copy = std::make_unique<Copy>(*texts);
    if (!CheckTlsFiles(copy->paths(), /*need_certificate=*/false).ok()) return files;
    const TlsFiles paths = copy->paths();
    entries_.push_back({files, std::string(flags), *std::move(texts), std::move(copy), ""});
    return paths;
  }

 private:
  struct Entry {
    TlsFiles files;
    std::string flags;
    Texts texts;
    std::unique_ptr<Copy> copy;
    std::string said;  // What was said against the files as they are; empty: nothing.
  };

  Keeper() {
    std::thread([this] {
      while (true) {
        absl::SleepFor(kTlsRefresh);
        absl::MutexLock lock(&mutex_);
        for (Entry& entry : entries_) Look(entry);
      }
    }).detach();
  }

  static bool Same(const TlsFiles& a, const TlsFiles& b) {
    return std::tie(a.certificate, a.key, a.authorities) ==
           std::tie(b.certificate, b.key, b.authorities);
  }

  // The copy is checked, too: files may change between two readings of them.
  static void Look(Entry& entry) {
    absl::Status status = CheckTlsFiles(entry.files, /*need_certificate=*/false, entry.flags);
    if (status.ok()) {
      auto texts = TextsOf(entry.files);
      if (!texts.ok()) return;  // The next look tells.
      if (*texts != entry.texts) {
        const Copy copy(*texts);
        if (!CheckTlsFiles(copy.paths(), /*need_certificate=*/false).ok()) return;
        entry.copy->Become(copy);
        entry.texts = *std::move(texts);
      }
      entry.said.clear();
    } else if (entry.said != status.message()) {
      entry.said = std::string(status.message());
      Log(LogLevel::kWarning, absl::StrCat(entry.said, "; what it said before stays valid"));
    }
  }

  absl::Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

TlsFiles KeptTlsFiles(const TlsFiles& files, absl::string_view flags) {
  return files.empty() ? files : Keeper::Get().Keep(files, flags);
}

}  // namespace stagewright
