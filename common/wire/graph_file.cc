#include "common/wire/graph_file.h"

#include <google/protobuf/stubs/logging.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "common/wire/graph_proto.h"

namespace stagewright {
namespace {

constexpr char kMagic[] = "SWGRAPH1";
constexpr size_t kMagicSize = 8;
constexpr size_t kHeaderSize = kMagicSize + 8 + 4;

uint64_t LittleEndian(const char* bytes, int count) {
  uint64_t value = 0;
  for (int i = count - 1; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

void AppendLittleEndian(uint64_t value, int count, std::string& out) {
  for (int i = 0; i < count; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

uint32_t Crc32(const char* bytes, size_t size) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes), size));
}

}  // namespace

absl::StatusOr<v1::Graph> ReadGraphProto(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::ostringstream buffer;
  buffer << in.rdbuf();
  return ParseGraphFile(std::move(buffer).str(), path);
}

absl::StatusOr<v1::Graph> ParseGraphFile(const std::string& bytes, const std::string& path) {
  if (bytes.size() < kMagicSize || bytes.compare(0, kMagicSize, kMagic) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a Stagewright graph file"));
  }
  if (bytes.size() < kHeaderSize)
    return absl::DataLossError(absl::StrCat(path, ": truncated in its header"));
  const uint64_t length = LittleEndian(bytes.data() + kMagicSize, 8);
  const auto crc = static_cast<uint32_t>(LittleEndian(bytes.data() + kMagicSize + 8, 4));
  const size_t present = bytes.size() - kHeaderSize;
  if (present != length) {
    return absl::DataLossError(
        absl::StrCat(path, present < length ? ": truncated: " : ": trailing bytes: ", present,
                     " of ", length, " payload bytes"));
  }
  if (Crc32(bytes.data() + kHeaderSize, present) != crc) {
    return absl::DataLossError(absl::StrCat(path, ": corrupt: the checksum does not match"));
  }
  v1::Graph proto;
  const google::protobuf::LogSilencer silence;  // The one message is ours.
  if (!proto.ParseFromArray(bytes.data() + kHeaderSize, static_cast<int>(present))) {
    return absl::DataLossError(absl::StrCat(path, ": corrupt: the payload is not a graph"));
  }
  return proto;
}

absl::StatusOr<Graph> ReadGraphFile(const std::string& path) {
  ASSIGN_OR_RETURN(v1::Graph proto, ReadGraphProto(path));
  auto graph = FromProto(proto);
  if (!graph.ok()) return Annotate(graph.status(), path);
  return graph;
}

std::string GraphFileBytes(const Graph& graph) {
  const std::string payload = ToProto(graph).SerializeAsString();
  std::string bytes(kMagic, kMagicSize);
  AppendLittleEndian(payload.size(), 8, bytes);
  AppendLittleEndian(Crc32(payload.data(), payload.size()), 4, bytes);
  return bytes + payload;
}

}  // namespace stagewright
