// Asking for memory before it is needed, where the hardware's own prefetching does not follow.
#pragma once

#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

// Regions the next piece of work will read, asked for in equal steps while this one is computed.
class Ahead {
 public:
  // `floats` from `from` on, but nothing at or past `end`, in `steps` pieces.
  void add(const float* from, int64_t floats, const float* end, int64_t steps) {
    if (from >= end) return;
    const float* const stop = floats < end - from ? from + floats : end;
    const int64_t bytes = (stop - from) * int64_t(sizeof(float));
    regions_[count_++] = {reinterpret_cast<const char*>(from), reinterpret_cast<const char*>(stop),
                          round_up(ceil_div(bytes, steps), 64)};
  }
  void step() {
    for (int i = 0; i < count_; ++i) {
      Region& r = regions_[i];
      for (const char* stop = r.at + r.piece; r.at < stop && r.at < r.end; r.at += 64) __builtin_prefetch(r.at, 0, 2);
    }
  }
  // The same, but up to `lines` of the largest piece are left to the caller, from where the answer points; NULL: nothing is.
  const char* step_but(int64_t lines) {
    Region* most = nullptr;
    for (int i = 0; i < count_; ++i)
      if (Region& r = regions_[i]; r.at < r.end && (!most || r.piece > most->piece)) most = &r;
    const char* const left = most && most->piece >= lines * 64 ? most->at : nullptr;
    if (left) most->at += lines * 64, most->piece -= lines * 64;
    step();
    if (left) most->piece += lines * 64;
    return left;
  }

 private:
  struct Region {
    const char *at, *end;
    int64_t piece;
  };
  Region regions_[3];
  int count_ = 0;
};

// Results so large that they would only push other things out of the caches are stored past them.
constexpr int64_t kLargeFloats = 6 << 20;
inline bool is_large(const float* p, int64_t row, int64_t floats, int64_t lanes) {
  return floats >= kLargeFloats && row % lanes == 0 && reinterpret_cast<uintptr_t>(p) % (lanes * sizeof(float)) == 0;
}

}  // namespace CT_TIER
}  // namespace ct
