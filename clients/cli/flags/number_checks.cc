#include "clients/cli/flags/number_checks.h"

#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace stagewright::cli {
namespace {

constexpr double kTenYears = 10 * 365 * 86400.0;

}  // namespace

CLI::Validator Positive() {
  const auto check = [](std::string& text) -> std::string {
    int64_t number = 0;
    if (absl::SimpleAtoi(text, &number) && number >= 1) return "";
    return absl::StrCat("\"", text, "\" is not a whole number, 1 or more");
  };
  return CLI::Validator(check, "1 or more");
}

CLI::Validator Seconds() {
  const auto check = [](std::string& text) -> std::string {
    double seconds = 0;
    if (absl::SimpleAtod(text, &seconds) && seconds > 0 && seconds <= kTenYears) return "";
    return absl::StrCat("\"", text, "\" is not a number of seconds, above 0 and at most ten years");
  };
  return CLI::Validator(check, "seconds");
}

}  // namespace stagewright::cli
