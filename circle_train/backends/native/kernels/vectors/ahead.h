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
    if (from < end) add_rows(from, floats < end - from ? floats : end - from, 0, 1, steps);
  }
  // `floats` of each of `rows` rows that begin `row` floats apart; as one where nothing lies between them.
  void add_rows(const float* from, int64_t floats, int64_t row, int64_t rows, int64_t steps) {
    if (floats <= 0 || rows <= 0) return;
    if (floats == row) floats *= rows, rows = 1;
    const char* const at = reinterpret_cast<const char*>(from);
    const int64_t bytes = floats * int64_t(sizeof(float)), lines = ceil_div(bytes, 64) * rows;
    regions_[count_++] = {at, at, bytes, row * int64_t(sizeof(float)), rows, ceil_div(lines, steps) * 64};
  }
  void step() {
    for (int i = 0; i < count_; ++i) {
      Region& r = regions_[i];
      for (int64_t left = r.piece; left > 0 && r.rows > 0; left -= 64) {
        __builtin_prefetch(r.at, 0, 2);
        r.at += 64;
        if (r.at >= r.row + r.bytes) r.at = r.row += r.stride, --r.rows;
      }
    }
  }
  // The same, but up to `lines` of the largest piece are left to the caller, from where the answer points; NULL: nothing is.
  const char* step_but(int64_t lines) {
    Region* most = nullptr;
    for (int i = 0; i < count_; ++i)
      if (Region& r = regions_[i]; r.rows == 1 && (!most || r.piece > most->piece)) most = &r;
    const char* const left = most && most->piece >= lines * 64 ? most->at : nullptr;
    if (left) most->at += lines * 64, most->piece -= lines * 64;
    step();
    if (left) most->piece += lines * 64;
    return left;
  }

 private:
  struct Region {
    const char *at, *row;
    int64_t bytes, stride, rows;  // of a row; between rows' beginnings; rows left
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
