// How many files and connections a process may have open at once.
#pragma once

namespace stagewright {

// Raises the process's limit, which is often 1024, to what the system allows it.
void OpenAsManyFilesAsAllowed();

}  // namespace stagewright
