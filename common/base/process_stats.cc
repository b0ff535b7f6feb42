#include "common/base/process_stats.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace stagewright {
namespace {

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int64_t OpenFiles() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int64_t entries = 0;
  while (readdir(folder) != nullptr) ++entries;
  closedir(folder);
  return entries - 3;  // ".", ".." and the folder itself.
}

// When the machine started, in seconds since the epoch.
double BootTime() {
  const std::string text = ReadAll("/proc/stat");
  const size_t at = text.find("btime ");
  double seconds = 0;
  if (at == std::string::npos ||
      !absl::SimpleAtod(text.substr(at + 6, text.find('\n', at) - at - 6), &seconds))
    return 0;
  return seconds;
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  stats.open_files = OpenFiles();
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0)
    stats.most_files = static_cast<int64_t>(files.rlim_cur);
  // Behind the program's name, which may have blanks, stand the fields from the third one on.
  const std::string text = ReadAll("/proc/self/stat");
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return stats;
  const std::vector<std::string> fields = absl::StrSplit(text.substr(name_end + 2), ' ');
  const auto field = [&](size_t number) {
    int64_t value = 0;
    return number - 3 < fields.size() && absl::SimpleAtoi(fields[number - 3], &value) ? value : 0;
  };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  stats.cpu_seconds = static_cast<double>(field(14) + field(15)) / ticks;
  stats.threads = field(20);
  stats.start_time_seconds = BootTime() + static_cast<double>(field(22)) / ticks;
  stats.virtual_bytes = field(23);
  stats.resident_bytes = field(24) * sysconf(_SC_PAGESIZE);
  return stats;
}

}  // namespace stagewright
