#include "common/config/number_checks.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
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

bool IsDecimal(absl::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// What is no decimal number is for CLI11 to read, or to refuse.
template <typename Whole>
CLI::Validator Fits() {
  const auto check = [](std::string& text) -> std::string {
    Whole number = 0;
    if (!IsDecimal(text) || absl::SimpleAtoi(text, &number)) return "";
    using Limits = std::numeric_limits<Whole>;
    return absl::StrCat("\"", text, "\" is not from ", Limits::min(), " to ", Limits::max());
  };
  return CLI::Validator(check, "");
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

void RefuseWhatDoesNotFit(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (absl::StartsWith(type, "INT")) option->check(Fits<int64_t>());
    if (absl::StartsWith(type, "UINT")) option->check(Fits<uint64_t>());
  }
  for (CLI::App* command : app.get_subcommands(/*filter=*/{})) RefuseWhatDoesNotFit(*command);
}

}  // namespace stagewright
