// Weights that lie as integers, as the floats that they stand for.
#pragma once

#include <algorithm>

#include "integer/requantize.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {

// A signed byte is the unsigned one of its other half, less 128.
struct Bytes {
  explicit Bytes(const ct_int_widen_args& t) : x(static_cast<const uint8_t*>(t.x)), flip(t.type == CT_INT_INT8 ? 0x80 : 0) {}
  const uint8_t* x;
  int32_t flip;
  vf operator()(int64_t i, int lanes) const { return to_float(load_bytes(x + i, lanes, flip) - flip); }
};

// y[i] = the number `at` + i, all of one channel.
template <class Stored>
void widen_row(const ct_int_widen_args& t, Stored stored, int64_t channel, int64_t at, int64_t n, float* y) {
  const float scale = t.scale[channel], zero = t.zero[channel];
  each_vector(n, [&](int64_t i, auto lanes) { store_some(y + i, (stored(at + i, lanes) - zero) * scale, lanes); });
}

// Columns n0..n0+cols of B(k,n), as pack_panel makes them of floats: outputs are B's columns (b_row 1), or its rows (b_col 1).
void pack_stored(const ct_int_widen_args& t, int64_t b_row, int64_t b_col, int64_t k, int64_t n0, int64_t cols, int64_t width, float* dst);

// What a kernel of floats works in, where the weights are widened into the scratch that its own begins behind.
inline int64_t widened_bytes(const ct_int_widen_args& t) {
  return round_up(t.outer * t.channels * t.inner * int64_t(sizeof(float)), CT_ALIGNMENT);
}

template <class Args>
int64_t widened_scratch(Args t, int threads, int64_t (*scratch)(const void*, int)) {
  const int64_t own = widened_bytes(t.stored);
  t.stored.x = nullptr;
  return own + scratch(&t, threads);
}

template <class Args>
int32_t run_widened(Context& context, Args t, const float* Args::*weights, int32_t (*run)(Context&, const void*)) {
  t.stored.y = reinterpret_cast<float*>(context.scratch());
  int_widen(context, &t.stored);
  Context behind = context.behind(widened_bytes(t.stored));
  t.*weights = t.stored.y, t.stored.x = nullptr;
  return run(behind, &t);
}

}  // namespace CT_TIER
}  // namespace ct
