#include "worker_daemon/transport/ucx/process_watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stagewright {
namespace {

// Fields of a name.
enum { kMachine = 0, kNamespace = 1, kProcess = 2, kStart = 3, kFields = 4 };

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Empty if there is no such process. Field 22 of /proc/PID/stat; the second field, the name of the
// program in parentheses, may hold spaces.
std::string StartTime(absl::string_view process) {
  const std::string stat = ReadLine(absl::StrCat("/proc/", process, "/stat"));
  const size_t name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return "";
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(name_end + 2), ' ');
  return fields.size() > 19 ? fields[19] : "";
}

}  // namespace

std::string ProcessName() {
  char space[64] = {};
  if (readlink("/proc/self/ns/pid", space, sizeof(space) - 1) < 0) space[0] = '\0';
  const std::string process = absl::StrCat(getpid());
  return absl::StrCat(ReadLine("/proc/sys/kernel/random/boot_id"), " ", space, " ", process, " ",
                      StartTime(process));
}

std::unique_ptr<ProcessWatch> ProcessWatch::Open(absl::string_view name) {
  const std::vector<std::string> theirs = absl::StrSplit(name, ' ');
  const std::vector<std::string> ours = absl::StrSplit(ProcessName(), ' ');
  pid_t process = 0;
  if (theirs.size() != kFields || ours.size() != kFields || theirs[kMachine] != ours[kMachine] ||
      theirs[kMachine].empty() || theirs[kNamespace] != ours[kNamespace] ||
      theirs[kNamespace].empty() || theirs[kStart].empty() ||
      !absl::SimpleAtoi(theirs[kProcess], &process)) {
    return nullptr;
  }
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  if (fd < 0 && errno != ESRCH) return nullptr;
  // The id may belong to another process by now. Read after opening: the fd stands for whoever
  // has this start time.
  if (fd >= 0 && StartTime(theirs[kProcess]) != theirs[kStart]) {
    close(fd);
    return std::unique_ptr<ProcessWatch>(new ProcessWatch(-1));
  }
  return std::unique_ptr<ProcessWatch>(new ProcessWatch(fd));
}

ProcessWatch::~ProcessWatch() {
  if (fd_ >= 0) close(fd_);
}

bool ProcessWatch::Ended() const {
  if (fd_ < 0) return true;
  pollfd poll_fd = {fd_, POLLIN, 0};
  return poll(&poll_fd, 1, 0) > 0;
}

}  // namespace stagewright
