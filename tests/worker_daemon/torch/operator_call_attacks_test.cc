// Graphs of strangers call operators with what they like: whatever that is, the worker's process
// lives on, and the kernel is asked for no file, socket or process. Each operator that graphs may
// name runs with arguments at random in a child that the kernel ends for such a call (seccomp).
//
// STAGEWRIGHT_ATTACKS: calls of each operator; more than here in scripts/fuzz.sh.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/graph/operators/allowed_operators.h"
#include "common/graph/operators/check_operators.h"
#include "worker_daemon/torch/operator_call.h"

namespace stagewright {
namespace {

using ::testing::IsEmpty;

// What opens or changes files, talks to others, or makes processes.
constexpr long kForbidden[] = {
    SYS_open,      SYS_openat,       SYS_openat2, SYS_creat,          SYS_socket,
    SYS_connect,   SYS_socketpair,   SYS_bind,    SYS_listen,         SYS_execve,
    SYS_execveat,  SYS_fork,         SYS_vfork,   SYS_clone,          SYS_clone3,
    SYS_unlink,    SYS_unlinkat,     SYS_rename,  SYS_renameat,       SYS_renameat2,
    SYS_mkdir,     SYS_mkdirat,      SYS_link,    SYS_linkat,         SYS_symlink,
    SYS_symlinkat, SYS_truncate,     SYS_chmod,   SYS_fchmodat,       SYS_mount,
    SYS_ptrace,    SYS_memfd_create, SYS_shmget,  SYS_io_uring_setup, SYS_process_vm_readv};

// What libraries look up of the machine, whatever a graph says: processors, messages in the user's
// language, the time zone. They are told that it is not there.
constexpr absl::string_view kHarmless[] = {"/sys/devices/system/cpu/", "/proc/stat",
                                           "/usr/share/locale/", "/etc/localtime"};

void OnForbidden(int, siginfo_t* info, void* context) {
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  if (info->si_syscall == SYS_openat) {
    const absl::string_view path(reinterpret_cast<const char*>(registers[REG_RSI]));
    for (const absl::string_view harmless : kHarmless) {
      if (!absl::StartsWith(path, harmless)) continue;
      registers[REG_RAX] = -ENOENT;
      return;
    }
  }
  signal(SIGSYS, SIG_DFL);
  raise(SIGSYS);
}

// From now on such a call ends the process with SIGSYS.
bool Confine() {
  constexpr auto kCalls = static_cast<uint8_t>(std::size(kForbidden));
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (uint8_t i = 0; i < kCalls; ++i) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(kForbidden[i]),
                               static_cast<uint8_t>(kCalls - i), 0));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
  const sock_fprog filter = {static_cast<uint16_t>(program.size()), program.data()};
  struct sigaction action = {};
  action.sa_sigaction = OnForbidden;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSYS, &action, nullptr);
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

std::vector<c10::OperatorName> AllowedOperators() {
  std::vector<c10::OperatorName> found;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const std::string overload = name.overload_name.empty() ? "default" : name.overload_name;
    if (IsAllowedOperator(absl::StrCat("aten.", name.name.substr(6), ".", overload)))
      found.push_back(name);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(a.name, a.overload_name) < std::tie(b.name, b.overload_name);
  });
  return found;
}

// Calls at random, the same for a seed.
class Attack {
 public:
  Attack(const c10::OperatorName& name, uint64_t seed)
      : schema_(c10::Dispatcher::singleton().findSchema(name)->schema()) {
    std::seed_seq sequence(name.name.begin(), name.name.end());
    std::vector<uint64_t> words(1);
    sequence.generate(words.begin(), words.end());
    random_.seed(words[0] + seed);
    at::manual_seed(words[0] + seed);
    node_.name = "attack";
    const std::string overload = name.overload_name.empty() ? "default" : name.overload_name;
    node_.target = absl::StrCat("aten.", name.name.substr(6), ".", overload);
  }

  // Whether the operator ran.
  bool Run() {
    for (const c10::Argument& argument : schema_.arguments()) {
      if (argument.default_value().has_value() && Chance(0.5)) {
        if (argument.kwarg_only()) continue;
        break;  // Those behind it take their defaults, too.
      }
      if (argument.name() == "generator" || argument.name() == "device") continue;
      node_.kwargs.push_back({argument.name(), Value(*argument.type(), argument.name())});
    }
    const TensorSource tensors = [this](const Argument& argument) -> const at::Tensor& {
      return tensors_[static_cast<size_t>(std::get<ValueRef>(argument.value).node.value())];
    };
    const auto call = OperatorCall::Bind(node_, at::kCPU, /*training=*/true, tensors);
    if (!call.ok()) return false;
    std::vector<at::Tensor> outputs;
    const absl::Status ran = call->Run(2, tensors, outputs);
    return ran.ok() || !outputs.empty();  // It gives more tensors than the node says.
  }

 private:
  bool Chance(double probability) {
    return std::uniform_real_distribution<>(0, 1)(random_) < probability;
  }
  template <typename T>
  T Of(std::initializer_list<T> choices) {
    return choices.begin()[random_() % choices.size()];
  }

  Argument Value(const c10::Type& type, const std::string& name) {
    switch (type.kind()) {
      case c10::TypeKind::OptionalType:
        if (Chance(0.4)) return {None{}};
        return Value(*type.expectRef<c10::OptionalType>().getElementType(), name);
      case c10::TypeKind::ListType: {
        Argument::List list;
        for (int count = Of({0, 1, 1, 2, 2, 3, 4}); count > 0; --count)
          list.push_back(Value(*type.expectRef<c10::ListType>().getElementType(), name));
        return {std::move(list)};
      }
      case c10::TypeKind::TensorType:
        tensors_.push_back(Tensor());
        return {ValueRef{NodeId(static_cast<int32_t>(tensors_.size()) - 1)}};
      case c10::TypeKind::BoolType:
        return {Chance(0.5)};
      case c10::TypeKind::FloatType:
        return {Of({0.0, 0.5, 1.0, -1.0, 2.0, 1e30, std::nan(""), HUGE_VAL})};
      case c10::TypeKind::StringType:
        return {std::string(
            Of({"L",       "U",    "add",    "amax", "backward", "bilinear", "constant", "floor",
                "fro",     "gels", "linear", "mean", "none",     "nuc",      "ortho",    "reduced",
                "reflect", "same", "sum",    "tanh", "trunc",    "valid",    "ij,jk->ik"}))};
      default:
        if (name == "dtype" && Chance(0.7)) return {Of({DType::kFloat32, DType::kInt64})};
        return {SymInt{
            0, Chance(0.9) ? Of<int64_t>({0, 1, 2, 3, 4, -1, -2, 5, 8, 100, -100})
                           : Of<int64_t>({1 << 20, 1ll << 31, 1ll << 62, INT64_MIN, INT64_MAX})}};
    }
  }

  at::Tensor Tensor() {
    const auto shape = Of<std::vector<int64_t>>({{},
                                                 {1},
                                                 {4},
                                                 {0},
                                                 {2, 3},
                                                 {3, 3},
                                                 {4, 4},
                                                 {0, 3},
                                                 {2, 3, 4},
                                                 {1, 3, 8, 8},
                                                 {2, 4, 5, 5},
                                                 {1, 2, 4, 4, 4}});
    const at::ScalarType type = Of({at::kFloat, at::kFloat, at::kFloat, at::kDouble, at::kLong,
                                    at::kInt, at::kBool, at::kBFloat16, at::kByte});
    at::Tensor tensor = at::randn(shape) * Of({1.0, 1.0, 1.0, 0.0, 1e3, 1e30});
    if (!at::isFloatingType(type)) tensor = tensor.clamp(-1e3, 1e3);
    tensor = tensor.to(type);
    return tensor.dim() > 1 && Chance(0.2) ? tensor.transpose(0, 1) : tensor;
  }

  const c10::FunctionSchema& schema_;
  std::mt19937_64 random_;
  Node node_;
  std::vector<at::Tensor> tensors_;
};

// What LibTorch looks for on the machine when it is first asked to compute.
void WarmUp() {
  at::set_num_threads(1);
  at::hasCUDA();  // Where it was built with CUDA, the driver.
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const auto options = at::TensorOptions(type);
    at::matmul(at::randn({64, 64}, options), at::randn({64, 64}, options));
    at::conv2d(at::randn({1, 3, 8, 8}, options), at::randn({4, 3, 3, 3}, options));
  }
  at::fft_rfft(at::randn({8}));
  at::linalg_eigh(at::eye(3));
}

// In the child: attacks from `first` on, of each of which it tells the number before.
[[noreturn]] void AttackAll(const std::vector<c10::OperatorName>& operators, size_t first,
                            int calls, int told) {
  const rlimit no_core = {0, 0}, memory = {rlim_t{8} << 30, rlim_t{8} << 30};
  const itimerval most = {{}, {2, 0}};  // Seconds of processor time for a call.
  setrlimit(RLIMIT_CORE, &no_core);
  setrlimit(RLIMIT_AS, &memory);
  if (!Confine()) _exit(3);
  int ran = 0;
  for (size_t i = first; i < operators.size(); ++i) {
    if (write(told, &i, sizeof(i)) != sizeof(i)) _exit(4);
    for (int call = 0; call < calls; ++call) {
      setitimer(ITIMER_PROF, &most, nullptr);
      ran += Attack(operators[i], static_cast<uint64_t>(call)).Run() ? 1 : 0;
    }
  }
  _exit(ran > 0 ? 0 : 5);
}

// The last operator that a child told of, and how it ended.
struct Ended {
  std::optional<size_t> last;
  int status = 0;
};

Ended AttackFrom(const std::vector<c10::OperatorName>& operators, size_t first, int calls) {
  int ends[2] = {};
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) AttackAll(operators, first, calls, ends[1]);
  close(ends[1]);
  Ended ended;
  size_t at = 0;
  while (read(ends[0], &at, sizeof(at)) == sizeof(at)) ended.last = at;
  close(ends[0]);
  EXPECT_EQ(waitpid(child, &ended.status, 0), child);
  return ended;
}

TEST(OperatorAttacks, EndNoProcessAndOpenNothing) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes more memory than the attacks may have";
#endif
  const char* const asked = std::getenv("STAGEWRIGHT_ATTACKS");
  const int calls = asked == nullptr ? 10 : std::atoi(asked);
  WarmUp();
  const std::vector<c10::OperatorName> operators = AllowedOperators();
  ASSERT_GT(operators.size(), 800u);
  std::vector<std::string> found;
  for (size_t first = 0; first < operators.size();) {
    const Ended ended = AttackFrom(operators, first, calls);
    if (WIFEXITED(ended.status)) {
      ASSERT_EQ(WEXITSTATUS(ended.status), 0);
      break;
    }
    ASSERT_TRUE(ended.last.has_value());
    // One that only takes its time is a job's own loss: runs have time limits.
    if (WTERMSIG(ended.status) != SIGPROF) {
      found.push_back(absl::StrCat(operators[*ended.last].name, ".",
                                   operators[*ended.last].overload_name, ": ",
                                   strsignal(WTERMSIG(ended.status))));
    }
    first = *ended.last + 1;
  }
  EXPECT_THAT(found, IsEmpty());
}

// That the child is confined, or the test above could not fail.
TEST(OperatorAttacks, WouldBeSeen) {
  EXPECT_EXIT(
      {
        if (!Confine()) _exit(3);
        access("/", F_OK);
        if (FILE* file = fopen("/dev/null", "r")) fclose(file);
        _exit(0);
      },
      ::testing::KilledBySignal(SIGSYS), "");
}

}  // namespace
}  // namespace stagewright
