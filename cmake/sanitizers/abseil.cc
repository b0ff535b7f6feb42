// Tells ThreadSanitizer what Abseil's locks and notifications order. Abseil does so itself if it is
// built with the sanitizer, which that of the distribution is not: whatever a lock guards would be
// reported.
//
// The functions here come before Abseil's of the same names, since this library is linked first,
// and call them in between. While they run the sanitizer looks at nothing, also not at conditions
// of Await, which whoever unlocks may evaluate.
#include <absl/synchronization/blocking_counter.h>
#include <absl/synchronization/mutex.h>
#include <absl/synchronization/notification.h>
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdlib>
#include <string>
#include <type_traits>

namespace {

thread_local int depth = 0;  // Abseil's functions call one another.

class Nested {
 public:
  Nested() { ++depth; }
  ~Nested() { --depth; }
  bool outermost() const { return depth == 1; }
};

// The next function of the name that `own` has, with `from` in the name replaced.
void* NextOf(void* own, const char* from = "", const char* to = "") {
  Dl_info info = {};
  if (dladdr(own, &info) == 0 || info.dli_sname == nullptr) std::abort();
  std::string name = info.dli_sname;
  if (*from != '\0') name.replace(name.rfind(from), std::string(from).size(), to);
  void* next = dlsym(RTLD_NEXT, name.c_str());
  if (next == nullptr) std::abort();
  return next;
}

template <typename Class, typename Result, typename... Arguments>
auto Next(Result (Class::*own)(Arguments...)) {
  using Function = Result (*)(Class*, Arguments...);
  return reinterpret_cast<Function>(NextOf(reinterpret_cast<void*>(own)));
}

template <typename Class, typename Result, typename... Arguments>
auto Next(Result (Class::*own)(Arguments...) const) {
  using Function = Result (*)(const Class*, Arguments...);
  return reinterpret_cast<Function>(NextOf(reinterpret_cast<void*>(own)));
}

constexpr unsigned kRead = __tsan_mutex_read_lock;
constexpr unsigned kTry = __tsan_mutex_try_lock;

template <typename Function, typename... Arguments>
auto Locked(absl::Mutex* mutex, unsigned flags, Function next, const Arguments&... arguments) {
  const Nested nested;
  if (nested.outermost()) __tsan_mutex_pre_lock(mutex, flags);
  if constexpr (std::is_void_v<decltype(next(mutex, arguments...))>) {
    next(mutex, arguments...);
    if (nested.outermost()) __tsan_mutex_post_lock(mutex, flags, 0);
  } else {
    const bool result = next(mutex, arguments...);
    const bool failed = (flags & kTry) != 0 && !result;
    if (nested.outermost())
      __tsan_mutex_post_lock(mutex, flags | (failed ? __tsan_mutex_try_lock_failed : 0u), 0);
    return result;
  }
}

void Unlocked(absl::Mutex* mutex, unsigned flags, void (*next)(absl::Mutex*)) {
  const Nested nested;
  if (nested.outermost()) __tsan_mutex_pre_unlock(mutex, flags);
  next(mutex);
  if (nested.outermost()) __tsan_mutex_post_unlock(mutex, flags);
}

// As if it were unlocked and locked again, which it is if it has to wait. Nobody awaits with a
// reader's lock here.
template <typename Function, typename... Arguments>
auto Awaited(absl::Mutex* mutex, Function next, const Arguments&... arguments) {
  if (depth == 0) {
    __tsan_mutex_pre_unlock(mutex, 0);
    __tsan_mutex_post_unlock(mutex, 0);
  }
  return Locked(mutex, 0, next, arguments...);
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

Mutex::~Mutex() {
  static const auto next = reinterpret_cast<void (*)(Mutex*)>(
      NextOf(reinterpret_cast<void*>(&Mutex::Lock), "4LockEv", "D1Ev"));
  __tsan_mutex_destroy(this, __tsan_mutex_not_static);
  next(this);
}

void Mutex::Lock() {
  static const auto next = Next(&Mutex::Lock);
  Locked(this, 0, next);
}

void Mutex::Unlock() {
  static const auto next = Next(&Mutex::Unlock);
  Unlocked(this, 0, next);
}

bool Mutex::TryLock() {
  static const auto next = Next(&Mutex::TryLock);
  return Locked(this, kTry, next);
}

void Mutex::ReaderLock() {
  static const auto next = Next(&Mutex::ReaderLock);
  Locked(this, kRead, next);
}

void Mutex::ReaderUnlock() {
  static const auto next = Next(&Mutex::ReaderUnlock);
  Unlocked(this, kRead, next);
}

bool Mutex::ReaderTryLock() {
  static const auto next = Next(&Mutex::ReaderTryLock);
  return Locked(this, kRead | kTry, next);
}

void Mutex::Await(const Condition& condition) {
  static const auto next = Next(&Mutex::Await);
  Awaited(this, next, condition);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static const auto next = Next(&Mutex::AwaitWithTimeout);
  return Awaited(this, next, condition, timeout);
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  static const auto next = Next(&Mutex::AwaitWithDeadline);
  return Awaited(this, next, condition, deadline);
}

void Mutex::LockWhen(const Condition& condition) {
  static const auto next = Next(&Mutex::LockWhen);
  Locked(this, 0, next, condition);
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  static const auto next = Next(&Mutex::LockWhenWithTimeout);
  return Locked(this, 0, next, condition, timeout);
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  static const auto next = Next(&Mutex::LockWhenWithDeadline);
  return Locked(this, 0, next, condition, deadline);
}

void CondVar::Wait(Mutex* mutex) {
  static const auto next = Next(&CondVar::Wait);
  Awaited(mutex, [this](Mutex* m) { next(this, m); });
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto next = Next(&CondVar::WaitWithTimeout);
  return Awaited(mutex, [&](Mutex* m) { return next(this, m, timeout); });
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto next = Next(&CondVar::WaitWithDeadline);
  return Awaited(mutex, [&](Mutex* m) { return next(this, m, deadline); });
}

// Whoever finds it notified does not take its lock, and may look at its flag, which comes after the
// lock, without a call.
void Notification::Notify() {
  static const auto next = Next(&Notification::Notify);
  __tsan_release(this);
  __tsan_release(reinterpret_cast<char*>(this) + sizeof(Mutex));
  next(this);
}

void Notification::WaitForNotification() const {
  static const auto next = Next(&Notification::WaitForNotification);
  next(this);
  __tsan_acquire(const_cast<Notification*>(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static const auto next = Next(&Notification::WaitForNotificationWithTimeout);
  const bool notified = next(this, timeout);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

// Only the last one takes the lock.
bool BlockingCounter::DecrementCount() {
  static const auto next = Next(&BlockingCounter::DecrementCount);
  __tsan_release(this);
  return next(this);
}

void BlockingCounter::Wait() {
  static const auto next = Next(&BlockingCounter::Wait);
  next(this);
  __tsan_acquire(this);
}

ABSL_NAMESPACE_END
}  // namespace absl
