#include "product/pack.h"

#include "vectors/stored.h"
#include "product/tile.h"

namespace ct {
namespace CT_TIER {
namespace {

inline void transpose_4x4(const float* src, int64_t src_row, float* dst, int64_t dst_row) {
#if defined(__SSE2__)
  __m128 a = _mm_loadu_ps(src), b = _mm_loadu_ps(src + src_row);
  __m128 c = _mm_loadu_ps(src + 2 * src_row), d = _mm_loadu_ps(src + 3 * src_row);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(dst, a);
  _mm_storeu_ps(dst + dst_row, b);
  _mm_storeu_ps(dst + 2 * dst_row, c);
  _mm_storeu_ps(dst + 3 * dst_row, d);
#else
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 4; ++c) dst[c * dst_row + r] = src[r * src_row + c];
#endif
}

}  // namespace

void transpose(const float* src, int64_t src_row, int64_t rows, int64_t cols, float* dst, int64_t dst_row) {
  // 16 columns at a time: whole cache lines of the source are used while they are near.
  for (int64_t c0 = 0; c0 < cols; c0 += 16) {
    const int64_t c1 = c0 + 16 < cols ? c0 + 16 : cols;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      int64_t c = c0;
      for (; c + 4 <= c1; c += 4) transpose_4x4(src + r * src_row + c, src_row, dst + c * dst_row + r, dst_row);
      for (; c < c1; ++c)
        for (int i = 0; i < 4; ++i) dst[c * dst_row + r + i] = src[(r + i) * src_row + c];
    }
    for (; r < rows; ++r)
      for (int64_t c = c0; c < c1; ++c) dst[c * dst_row + r] = src[r * src_row + c];
  }
}

void pack_panel(const float* b, int64_t b_row, int64_t b_col, int64_t k, int64_t cols, int64_t width, float alpha, float* dst) {
  if (cols < width) {
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = cols; j < width; ++j) dst[i * width + j] = 0;
  }
  if (b_row == 1 && b_col != 1) {
    transpose(b, b_col, cols, k, dst, width);
  } else if (b_col == 1) {
    for (int64_t i = 0; i < k; ++i)
      each_vector(cols, [&](int64_t j, auto lanes) { store_some(dst + i * width + j, load_some(b + i * b_row + j, lanes), lanes); });
  } else {
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < cols; ++j) dst[i * width + j] = b[i * b_row + j * b_col];
  }
  if (alpha != 1) {
    const int64_t size = k * width;
    for (int64_t i = 0; i < size; i += W) store(dst + i, load(dst + i) * alpha);
  }
}

void pack_stored(const ct_int_widen_args& t, int64_t b_row, int64_t b_col, int64_t k, int64_t n0, int64_t cols, int64_t width, float* dst) {
  const Bytes bytes(t);
  const auto channel = [&](int64_t output) { return t.channels > 1 ? output : 0; };
  if (b_col == 1) {
    for (int64_t i = 0; i < k; ++i) {
      widen_row(t, bytes, channel(i), i * b_row + n0, cols, dst + i * width);
      for (int64_t j = cols; j < width; ++j) dst[i * width + j] = 0;
    }
    return;
  }
  constexpr int64_t kPiece = 64;
  float piece[kTileCols * kPiece] = {};
  for (int64_t i = 0; i < k; i += kPiece) {
    const int64_t n = std::min(kPiece, k - i);
    for (int64_t j = 0; j < cols; ++j) widen_row(t, bytes, channel(n0 + j), (n0 + j) * b_col + i, n, piece + j * kPiece);
    transpose(piece, kPiece, width, n, dst + i * width, width);
  }
}

int64_t panel_width(int64_t n, int64_t n0) { return n - n0 > W ? kTileCols : W; }

int64_t packed_size(int64_t k, int64_t n) {
  const int64_t full = n / kTileCols * kTileCols;
  return k * (full + (full < n ? panel_width(n, full) : 0));
}

}  // namespace CT_TIER
}  // namespace ct
