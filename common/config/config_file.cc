#include "common/config/config_file.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/one_line.h"
#include "common/base/text_file.h"

namespace stagewright {
namespace {

int LineOf(const YAML::Mark& mark) { return mark.line + 1; }

std::string Quoted(absl::string_view word) { return absl::StrCat("\"", word, "\""); }

absl::Status Wrong(const ConfigFile& file, int line, absl::string_view what) {
  return OneLine(absl::InvalidArgumentError(absl::StrCat(file.path, ":", line, ": ", what)));
}

// A key that is one word, and that was not there before.
absl::StatusOr<std::string> ReadKey(const ConfigFile& file, const YAML::Node& node,
                                    std::map<std::string, int>& lines) {
  const int line = LineOf(node.Mark());
  if (!node.IsScalar()) return Wrong(file, line, "a key is one word");
  const auto [known, added] = lines.emplace(node.Scalar(), line);
  if (added) return node.Scalar();
  return Wrong(
      file, line,
      absl::StrCat(Quoted(node.Scalar()), " is given twice, first in line ", known->second));
}

absl::StatusOr<ConfigEntry> ReadEntry(const ConfigFile& file, const std::string& key, int line,
                                      const YAML::Node& value) {
  ConfigEntry entry{key, {}, value.IsSequence(), line};
  if (value.IsScalar()) {
    entry.values.push_back(value.Scalar());
    return entry;
  }
  if (value.IsNull()) {
    return Wrong(file, line,
                 absl::StrCat(Quoted(key), " has no value: leave it out, or write \"\" for none"));
  }
  if (value.IsMap())
    return Wrong(file, line, absl::StrCat(Quoted(key), " is one value, and no map"));
  for (const YAML::Node& item : value) {
    if (!item.IsScalar())
      return Wrong(file, LineOf(item.Mark()), absl::StrCat(Quoted(key), " is a list of words"));
    entry.values.push_back(item.Scalar());
  }
  return entry;
}

absl::StatusOr<std::vector<ConfigEntry>> ReadEntries(const ConfigFile& file, absl::string_view what,
                                                     const YAML::Node& map, int line) {
  if (!map.IsMap()) return Wrong(file, line, absl::StrCat(what, " is a map of KEY: VALUE"));
  std::vector<ConfigEntry> entries;
  std::map<std::string, int> lines;
  for (const auto& item : map) {
    ASSIGN_OR_RETURN(const std::string key, ReadKey(file, item.first, lines));
    ASSIGN_OR_RETURN(ConfigEntry entry,
                     ReadEntry(file, key, LineOf(item.first.Mark()), item.second));
    entries.push_back(std::move(entry));
  }
  return entries;
}

absl::Status ReadContexts(const YAML::Node& map, int line, ConfigFile& file) {
  if (!map.IsMap()) return Wrong(file, line, "\"contexts\" is a map of NAME: {KEY: VALUE}");
  std::map<std::string, int> lines;
  for (const auto& item : map) {
    ConfigContext context;
    ASSIGN_OR_RETURN(context.name, ReadKey(file, item.first, lines));
    context.line = LineOf(item.first.Mark());
    ASSIGN_OR_RETURN(context.entries,
                     ReadEntries(file, absl::StrCat("the context ", Quoted(context.name)),
                                 item.second, context.line));
    file.contexts.push_back(std::move(context));
  }
  return absl::OkStatus();
}

absl::Status ReadRoot(const YAML::Node& root, bool with_contexts, ConfigFile& file) {
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap()) return Wrong(file, LineOf(root.Mark()), "the file is a map of KEY: VALUE");
  std::map<std::string, int> lines;
  for (const auto& item : root) {
    ASSIGN_OR_RETURN(const std::string key, ReadKey(file, item.first, lines));
    const int line = LineOf(item.first.Mark());
    if (with_contexts && key == kContextsKey) {
      RETURN_IF_ERROR(ReadContexts(item.second, line, file));
      continue;
    }
    ASSIGN_OR_RETURN(ConfigEntry entry, ReadEntry(file, key, line, item.second));
    file.entries.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

// Where the documents of a text begin.
class DocumentStarts : public YAML::EventHandler {
 public:
  std::vector<YAML::Mark> marks;

  void OnDocumentStart(const YAML::Mark& mark) override { marks.push_back(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// The first two of them at most: yaml-cpp 0.7 finds documents without end in some texts
// ("!!binary a:% !!float b"), which YAML::LoadAll would keep.
std::vector<YAML::Mark> FirstDocuments(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStarts starts;
  while (starts.marks.size() < 2 && parser.HandleNextDocument(starts)) {
  }
  return starts.marks;
}

}  // namespace

absl::StatusOr<ConfigFile> ParseConfig(const std::string& path, const std::string& text,
                                       bool with_contexts) {
  ConfigFile file;
  file.path = path;
  try {
    const std::vector<YAML::Mark> documents = FirstDocuments(text);
    if (documents.size() > 1)
      return Wrong(file, LineOf(documents[1]), "a second document begins: one is read");
    if (!documents.empty()) RETURN_IF_ERROR(ReadRoot(YAML::Load(text), with_contexts, file));
  } catch (const YAML::Exception& error) {
    return Wrong(file, error.mark.is_null() ? 1 : LineOf(error.mark), error.msg);
  }
  return file;
}

absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path, bool with_contexts) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  return ParseConfig(path, text, with_contexts);
}

absl::StatusOr<std::string> WithEntry(const std::string& path, const std::string& text,
                                      const std::string& key, const std::string& value) {
  ASSIGN_OR_RETURN(const ConfigFile before, ParseConfig(path, text, /*with_contexts=*/true));
  YAML::Emitter quoted;
  quoted << YAML::DoubleQuoted << value;
  const std::string line = absl::StrCat(key, ": ", quoted.c_str());
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const auto entry = std::find_if(before.entries.begin(), before.entries.end(),
                                  [&](const ConfigEntry& known) { return known.key == key; });
  const bool is_new = entry == before.entries.end();
  if (is_new) {
    const bool marked = absl::StartsWith(text, "---");  // The document begins behind that.
    lines.insert(lines.begin() + (marked ? 1 : 0), line);
  } else {
    lines[static_cast<size_t>(entry->line - 1)] = line;
  }
  std::string result = absl::StrJoin(lines, "\n");
  const auto after = ParseConfig(path, result, /*with_contexts=*/true);
  if (after.ok() && after->entries.size() == before.entries.size() + (is_new ? 1 : 0) &&
      after->contexts.size() == before.contexts.size())
    return result;
  return Wrong(before, is_new ? 1 : entry->line,
               absl::StrCat(Quoted(key), " cannot be changed here: write it as a line of its own"));
}

}  // namespace stagewright
