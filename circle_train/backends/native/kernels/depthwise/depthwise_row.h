// One row of a depthwise convolution: each channel by itself, channels side by side in vectors.
#pragma once

#include "vectors/ahead.h"
#include "vectors/bf16.h"
#include "conv/conv_shape.h"

namespace ct {
namespace CT_TIER {

// Rows of an image as [width][channels]; where channels are repeated `repeat` times or x lies as bfloat16, a row is made in
// scratch (slot `slot` of it).
struct RowReader {
  const float* x;
  int64_t height, width, channels, repeat;
  float* scratch;       // floats_per_row() a slot
  bool bf16 = false;
  // With so many slots a row of bfloat16s keeps its place from window to window: it is widened once.
  static constexpr int64_t kMostSlots = 8;
  int64_t slots = 0;
  mutable int64_t held[kMostSlots] = {};
  void keep_rows(int64_t kernel, int64_t dilation) { slots = bf16 && dilation == 1 && kernel <= kMostSlots ? kernel : 0; }

  bool plain() const { return repeat == 1 && !bf16; }
  int64_t floats_per_row() const { return plain() ? 0 : round_up(width * channels * repeat, 16); }
  // NULL outside the image.
  const float* row(int64_t n, int64_t h, int64_t slot) const;
};

// p + at where the elements may be bfloat16s.
inline const float* moved(const float* p, int64_t at, bool bf16) {
  return bf16 ? reinterpret_cast<const float*>(reinterpret_cast<const uint16_t*>(p) + at) : p + at;
}
inline float* moved(float* p, int64_t at, bool bf16) { return const_cast<float*>(moved(static_cast<const float*>(p), at, bf16)); }

// What a row's sums become: clamp(sum + bias + add), or mask(sum + (accumulate ? out : 0)).
struct RowEnd {
  const float* bias = nullptr;
  const float* add = nullptr;
  const float* out_mask = nullptr;
  Clamp act, mask;
  bool accumulate = false;
  bool past = false;  // store past the caches
  // `out` and `out_mask` lie as bfloat16.
  bool bf16_out = false, bf16_mask = false;
};

struct RowWindow {
  int64_t kernel_h, kernel_w, stride, dilation, pad;  // along the width
  int64_t in_w, out_w, channels;
};

// out[ow][c] = end(sum over kh, kw of rows[kh][ow*stride - pad + kw*dilation][c] * w[kh*kernel_w + kw][c]); rows may be NULL.
void depthwise_row(const RowWindow& window, const float* const* rows, const float* w, const RowEnd& end, Ahead& ahead,
                   float* out);

// Pieces of `ahead` that one row takes.
inline int64_t row_steps(const RowWindow& window) { return window.out_w / 4 + 1; }

// dw[kh*kernel_w+kw][c] += sum over ow of dy[ow][c] * rows[kh][...][c]; db[c] += sum dy[ow][c]. dw, db may be NULL.
void depthwise_row_grad_w(const RowWindow& window, const float* const* rows, const float* dy, Ahead& ahead, float* dw,
                          float* db);

}  // namespace CT_TIER
}  // namespace ct
