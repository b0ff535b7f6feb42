// Names of an enum's values, as users type and read them: a table beside each enum, read by these.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stagewright {

template <typename Enum>
struct Named {
  Enum value;
  absl::string_view name;
};

// In the order of the table.
template <typename Enum, size_t n>
std::vector<std::string> NamesIn(const Named<Enum> (&table)[n]) {
  std::vector<std::string> names;
  for (const Named<Enum>& entry : table) names.emplace_back(entry.name);
  return names;
}

// "unknown" for a value that the table does not have.
template <typename Enum, size_t n>
constexpr absl::string_view NameIn(const Named<Enum> (&table)[n], Enum value) {
  for (const Named<Enum>& entry : table) {
    if (entry.value == value) return entry.name;
  }
  return "unknown";
}

template <typename Enum, size_t n>
constexpr std::optional<Enum> FindIn(const Named<Enum> (&table)[n], absl::string_view name) {
  for (const Named<Enum>& entry : table) {
    if (entry.name == name) return entry.value;
  }
  return std::nullopt;
}

}  // namespace stagewright
