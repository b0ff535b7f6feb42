// Names of jobs as people write them.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

namespace stagewright::cli {

// "jobs/7" of "7"; other text as it is.
inline std::string JobName(const std::string& text) {
  const bool number = !text.empty() && std::all_of(text.begin(), text.end(),
                                                   [](char c) { return c >= '0' && c <= '9'; });
  return number ? "jobs/" + text : text;
}

// The job that a command is about.
inline CLI::Option* AddJobOption(CLI::App& command, std::string& name) {
  return command.add_option("job", name, "jobs/7, or 7")->required()->transform(JobName, "");
}

// One or more.
inline CLI::Option* AddJobsOption(CLI::App& command, std::vector<std::string>& names) {
  return command.add_option("job", names, "jobs/7, or 7; one or more")
      ->required()
      ->transform(JobName, "");
}

}  // namespace stagewright::cli
