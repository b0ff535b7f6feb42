// --log-format and --log-level, which the programs that run for long have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "common/log/log.h"

namespace stagewright {

template <typename Enum, size_t kCount>
CLI::Option* AddLogFlag(CLI::App& app, const char* name, Enum& value,
                        const absl::string_view (&names)[kCount], const char* help) {
  const std::vector<std::string> known(std::begin(names), std::end(names));
  return app
      .add_option_function<std::string>(
          name,
          [&value, known](const std::string& chosen) {
            const auto at = std::find(known.begin(), known.end(), chosen);
            value = static_cast<Enum>(at - known.begin());
          },
          help)
      ->check(CLI::IsMember(known))
      ->default_str(known[static_cast<size_t>(value)]);
}

// `options` outlives the app's parsing.
inline void AddLogFlags(CLI::App& app, LogOptions& options) {
  AddLogFlag(app, "--log-format", options.format, kLogFormatNames,
             "lines of the log: text, or json for programs");
  AddLogFlag(app, "--log-level", options.level, kLogLevelNames,
             "least that is logged: debug, info, warning, error");
}

}  // namespace stagewright
