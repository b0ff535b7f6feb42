#include "worker_daemon/device/cpu_name.h"

#include <ATen/Version.h>
#include <sys/utsname.h>

#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace stagewright {
namespace {

// What /proc/cpuinfo says of the first processor.
std::map<std::string, std::string> FieldsOf(const std::string& cpuinfo) {
  std::map<std::string, std::string> fields;
  for (const auto line : absl::StrSplit(cpuinfo, '\n')) {
    const std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits(':', 1));
    std::string value = field.second;
    absl::RemoveExtraAsciiWhitespace(&value);
    if (!value.empty())
      fields.try_emplace(std::string(absl::StripAsciiWhitespace(field.first)), value);
  }
  return fields;
}

// Without marks and the clock rate, which says nothing of what it runs at.
std::string Plain(const std::string& model) {
  std::string plain =
      absl::StrReplaceAll(model, {{"(R)", ""}, {"(TM)", ""}, {"(tm)", ""}, {" CPU", ""}});
  plain = plain.substr(0, plain.find('@'));
  absl::RemoveExtraAsciiWhitespace(&plain);
  return plain;
}

}  // namespace

std::string CpuName(const std::string& cpuinfo, const std::string& machine,
                    const std::string& extension) {
  std::map<std::string, std::string> fields = FieldsOf(cpuinfo);
  std::string name = Plain(fields["model name"]);
  if (name.empty()) name = machine;
  std::vector<std::string> numbers;
  for (const char* field : {"cpu family", "model", "CPU implementer", "CPU part"}) {
    if (!fields[field].empty()) numbers.push_back(fields[field]);
  }
  if (!numbers.empty()) absl::StrAppend(&name, " (", absl::StrJoin(numbers, "-"), ")");
  return extension.empty() ? name : absl::StrCat(name, ", ", extension);
}

std::string ThisCpuName() {
  std::ostringstream cpuinfo;
  cpuinfo << std::ifstream("/proc/cpuinfo").rdbuf();
  utsname system = {};
  uname(&system);
  return CpuName(cpuinfo.str(), system.machine, at::get_cpu_capability());
}

}  // namespace stagewright
