#include "common/base/open_files.h"

#include <sys/resource.h>

namespace stagewright {

void OpenAsManyFilesAsAllowed() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace stagewright
