#include "planner_service/importers/profile_text.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "common/base/json_object.h"
#include "common/base/one_line.h"
#include "common/base/text_file.h"

namespace stagewright {
namespace {

constexpr double kLargestFigure = static_cast<double>(int64_t{1} << 50);  // ns or bytes.
constexpr size_t kLongestLine = size_t{1} << 20;
constexpr std::string_view kSeparator = " -- ";
constexpr std::string_view kWhite = " \t\r";

std::string_view Strip(std::string_view text) {
  const size_t begin = text.find_first_not_of(kWhite);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhite) - begin + 1);
}

std::vector<std::string_view> Split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find(separator)) != std::string_view::npos;) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + separator.size());
  }
  parts.push_back(text);
  return parts;
}

// At most 40 bytes of what stands there, whole characters only.
std::string Quote(std::string_view text) {
  size_t length = std::min<size_t>(text.size(), 40);
  while (length < text.size() && length > 0 && (text[length] & 0xc0) == 0x80) --length;
  return absl::StrCat("\"", std::string(text.substr(0, length)), length < text.size() ? "..." : "",
                      "\"");
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  absl::StatusOr<ProfileText> Read() {
    if (text_.size() > kLargestTextFile) return Fail(file_, "is larger than 64 MiB");
    const size_t bad = FindInvalidUtf8(text_);
    if (bad != std::string_view::npos) {
      line_ = LineOfByte(text_, bad);
      return Fail(Where(), "not UTF-8");
    }
    while (!text_.empty()) {
      ++line_;
      const size_t end = text_.find('\n');
      const std::string_view line = text_.substr(0, end);
      text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
      if (line.size() > kLongestLine) return Fail(Where(), "longer than 1 MiB");
      if (Strip(line).empty()) continue;
      RETURN_IF_ERROR(line[0] == '\t' || line[0] == ' ' ? ReadEdge(Strip(line))
                                                        : ReadNode(Strip(line)));
    }
    if (profile_.nodes.empty()) return Fail(file_, "there is no node in it");
    return std::move(profile_);
  }

 private:
  absl::Status ReadEdge(std::string_view line) {
    const auto ends = Split(line, kSeparator);
    if (ends.size() != 2) return Fail(Where(), "an edge is \"SOURCE -- DESTINATION\"");
    int32_t index[2] = {};
    for (int i = 0; i < 2; ++i) {
      const auto known = index_.find(std::string(Strip(ends[i])));
      if (known == index_.end()) {
        return Fail(Where(), absl::StrCat(i == 0 ? "source " : "destination ", Quote(ends[i]),
                                          " of an edge is no node above"));
      }
      index[i] = known->second;
    }
    profile_.edges.emplace_back(index[0], index[1]);
    return absl::OkStatus();
  }

  absl::Status ReadNode(std::string_view line) {
    const auto parts = Split(line, kSeparator);
    if (parts.size() != 3 && parts.size() != 4) {
      return Fail(Where(), absl::StrCat("a node has 3 or 4 parts between \" -- \", this line has ",
                                        parts.size()));
    }
    ProfileLine node;
    node.id = std::string(Strip(parts[0]));
    node.description = std::string(Strip(parts[1]));
    if (node.id.empty()) return Fail(Where(), "the id is empty");
    const auto [known, is_new] =
        index_.try_emplace(node.id, static_cast<int32_t>(profile_.nodes.size()));
    if (!is_new) return Fail(Where(), absl::StrCat("the id ", Quote(node.id), " is used twice"));
    RETURN_IF_ERROR(ReadFields(parts[2], node.cost));
    profile_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  absl::Status ReadFields(std::string_view text, ProfiledCost& cost) {
    struct Field {
      std::string_view name;
      double scale;
      int64_t value = 0;
      bool seen = false;
    };
    Field fields[] = {{"forward_compute_time", 1e6},
                      {"backward_compute_time", 1e6},
                      {"activation_size", 1},
                      {"parameter_size", 1}};
    for (std::string_view part : Split(text, ", ")) {
      const size_t equals = part.find('=');
      const std::string_view name = Strip(part.substr(0, equals));
      for (Field& field : fields) {
        if (name != field.name) continue;
        if (field.seen) return Fail(Where(), absl::StrCat(std::string(name), " is given twice"));
        if (equals == std::string_view::npos)
          return Fail(Where(), absl::StrCat(std::string(name), " has no value"));
        field.seen = true;
        const auto sum = ReadSum(Strip(part.substr(equals + 1)), field.scale, name);
        if (!sum.ok()) return sum.status();
        field.value = *sum;
      }
    }
    for (const Field& field : fields) {
      if (!field.seen) return Fail(Where(), absl::StrCat(std::string(field.name), " is missing"));
    }
    cost.forward = Nanos(fields[0].value);
    cost.backward = Nanos(fields[1].value);
    cost.activation_bytes = Bytes(fields[2].value);
    cost.parameter_bytes = Bytes(fields[3].value);
    return absl::OkStatus();
  }

  // "F" or "[F; F]", each multiplied by `scale`.
  absl::StatusOr<int64_t> ReadSum(std::string_view text, double scale, std::string_view field) {
    std::vector<std::string_view> items = {text};
    if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
      items = Split(text.substr(1, text.size() - 2), ";");
    }
    double sum = 0;
    for (std::string_view item : items) {
      item = Strip(item);
      double value = 0;
      const auto parsed = std::from_chars(item.data(), item.data() + item.size(), value);
      const bool overflow =
          parsed.ec == std::errc::result_out_of_range && parsed.ptr != item.data();
      if (parsed.ptr != item.data() + item.size() || item.empty() ||
          (parsed.ec != std::errc() && !overflow) || std::isnan(value)) {
        return Fail(Where(), absl::StrCat(std::string(field), ": ", Quote(item), " is no number"));
      }
      if (value < 0) {
        return Fail(Where(), absl::StrCat(std::string(field), ": ", Quote(item), " is negative"));
      }
      sum += overflow ? HUGE_VAL : value * scale;
      if (!(sum <= kLargestFigure)) {
        return Fail(Where(), absl::StrCat(std::string(field), ": ", Quote(item), " is too large"));
      }
    }
    return std::llround(sum);
  }

  std::string Where() const { return absl::StrCat(file_, ", line ", line_); }
  static absl::Status Fail(const std::string& where, const std::string& what) {
    return OneLine(absl::InvalidArgumentError(absl::StrCat(where, ": ", what)));
  }

  std::string_view text_;
  const std::string& file_;
  int64_t line_ = 0;
  ProfileText profile_;
  absl::flat_hash_map<std::string, int32_t> index_;
};

}  // namespace

absl::StatusOr<ProfileText> ParseProfileText(std::string_view text, const std::string& file) {
  return Reader(text, file).Read();
}

ProfileText Without(const ProfileText& profile, const std::vector<bool>& removed) {
  ProfileText result;
  std::vector<int32_t> index(profile.nodes.size(), -1);
  for (size_t v = 0; v < profile.nodes.size(); ++v) {
    if (removed[v]) continue;
    index[v] = static_cast<int32_t>(result.nodes.size());
    result.nodes.push_back(profile.nodes[v]);
  }
  for (const auto& [from, to] : profile.edges) {
    if (index[from] >= 0 && index[to] >= 0) result.edges.emplace_back(index[from], index[to]);
  }
  return result;
}

absl::StatusOr<Graph> MakeProfileGraph(const ProfileText& profile, const std::string& file,
                                       int64_t samples) {
  if (profile.nodes.empty())
    return absl::InvalidArgumentError(absl::StrCat(file, ": no node is left to plan"));
  GraphData data;
  data.name = GraphNameOfFile(file);
  for (const ProfileLine& line : profile.nodes) {
    Node node;
    node.name = line.id;
    node.module = line.description;
    node.cost = line.cost;
    node.cost->samples = samples;
    data.nodes.push_back(std::move(node));
  }
  for (const auto& [from, to] : profile.edges) data.nodes[to].after.push_back(NodeId(from));
  auto graph = Graph::Create(std::move(data));
  if (!graph.ok()) return OneLine(Annotate(graph.status(), file));
  return graph;
}

std::string GraphNameOfFile(const std::string& file) {
  const size_t slash = file.find_last_of('/');
  std::string name = slash == std::string::npos ? file : file.substr(slash + 1);
  for (const char* extension : {".txt", ".json", ".graph"}) {
    const std::string end = extension;
    if (name.size() > end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0)
      name.resize(name.size() - end.size());
  }
  return name;
}

absl::Status CheckImportOptions(const ImportOptions& options) {
  if (options.profile_batch < 0 || options.profile_batch > int64_t{1} << 40) {
    return absl::InvalidArgumentError(absl::StrCat("profile_batch: ", options.profile_batch,
                                                   " is no number of samples in a micro-batch"));
  }
  return absl::OkStatus();
}

}  // namespace stagewright
