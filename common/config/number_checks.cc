#include "common/config/number_checks.h"

#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace stagewright {
namespace {

constexpr double kTenYears = 10 * 365 * 86400.0;

// `unit`: "seconds", of which ten years have `most`.
CLI::Validator Duration(const char* unit, double most) {
  const auto check = [=](std::string& text) -> std::string {
    double number = 0;
    if (absl::SimpleAtod(text, &number) && number > 0 && number <= most) return "";
    return absl::StrCat("\"", text, "\" is not a number of ", unit,
                        ", above 0 and at most ten years");
  };
  return CLI::Validator(check, unit);
}

}  // namespace

CLI::Validator Positive() {
  const auto check = [](std::string& text) -> std::string {
    int64_t number = 0;
    if (absl::SimpleAtoi(text, &number) && number >= 1) return "";
    return absl::StrCat("\"", text, "\" is not a whole number, 1 or more");
  };
  return CLI::Validator(check, "1 or more");
}

CLI::Validator Seconds() { return Duration("seconds", kTenYears); }

CLI::Validator Minutes() { return Duration("minutes", kTenYears / 60); }

CLI::Validator Within(double least, double most) {
  const auto check = [=](std::string& text) -> std::string {
    double number = 0;
    if (absl::SimpleAtod(text, &number) && number >= least && number <= most) return "";
    return absl::StrCat("\"", text, "\" is not a number from ", least, " to ", most);
  };
  return CLI::Validator(check, absl::StrCat("from ", least, " to ", most));
}

}  // namespace stagewright
