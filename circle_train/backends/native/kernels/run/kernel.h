// What a kernel is: two functions over its args struct. Each SIMD tier fills one table of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "run/abi.h"
#include "run/workers.h"

namespace ct {

// Below this much estimated work a loop stays on the calling thread: waking and joining would cost more.
constexpr double kAloneNanoseconds = 5000;

// What a running kernel sees. Units given to `parallel` are a function of the problem only.
class Context {
 public:
  Context(Workers* workers, void* scratch) : workers_(workers), scratch_(static_cast<char*>(scratch)) {}

  // The number of workers for which per-worker scratch is laid out.
  int workers() const { return workers_ ? workers_->threads() : 1; }
  char* scratch() const { return scratch_; }
  // The same for a kernel within a kernel, whose scratch begins `bytes` behind this one's.
  Context behind(int64_t bytes) const { return {workers_, scratch_ + bytes}; }

  // body(worker, begin, end) over 0..units; `nanoseconds` estimates the whole on one thread.
  template <class F>
  void parallel(int64_t units, double nanoseconds, F body) {
    if (units <= 0) return;
    if (!workers_ || workers_->threads() == 1 || units == 1 || nanoseconds < kAloneNanoseconds) {
      body(0, int64_t(0), units);
      return;
    }
    workers_->run([](void* f, int worker, int64_t begin, int64_t end) { (*static_cast<F*>(f))(worker, begin, end); }, &body, units);
  }

 private:
  Workers* workers_;
  char* scratch_;
};

struct Kernel {
  int32_t (*run)(Context&, const void* args);
  int64_t (*scratch)(const void* args, int threads);
};

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

// Hands out aligned pieces of the scratch; `scratch` functions replay the same calls from nullptr to measure.
class Carver {
 public:
  explicit Carver(char* base) : base_(base) {}
  template <class T>
  T* take(int64_t count) {
    T* piece = reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(base_) + used_);
    used_ += round_up(count * int64_t(sizeof(T)), CT_ALIGNMENT);
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

namespace avx512 { extern const Kernel table[CT_KERNEL_COUNT]; }
namespace avx2 { extern const Kernel table[CT_KERNEL_COUNT]; }
namespace portable { extern const Kernel table[CT_KERNEL_COUNT]; }

}  // namespace ct
