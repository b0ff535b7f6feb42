// Options whose value is one of the names of an enum (common/training/names.h).
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "common/training/names.h"

namespace stagewright::cli {

// `value` outlives the app.
template <typename Enum, size_t n>
CLI::Option* AddNamedOption(CLI::App& command, const char* option, Enum& value,
                            const Named<Enum> (&names)[n], const char* help) {
  return command
      .add_option_function<std::string>(
          option, [&value, &names](const std::string& name) { value = *FindIn(names, name); }, help)
      ->check(CLI::IsMember(NamesIn(names)));
}

}  // namespace stagewright::cli
