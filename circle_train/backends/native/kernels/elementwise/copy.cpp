// Strided copies (transpose, slice, concat, pad, broadcast) and fills.
#include <algorithm>

#include "product/pack.h"
#include "vectors/strides.h"
#include "run/table.h"
#include "vectors/quads.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int kX = 0, kY = 1;

Space space_of(const ct_copy_args& t) {
  Space s;
  s.rank = t.rank;
  s.tensors = 2;
  std::copy(t.shape, t.shape + t.rank, s.shape);
  std::copy(t.x_strides, t.x_strides + t.rank, s.strides[kX]);
  std::copy(t.y_strides, t.y_strides + t.rank, s.strides[kY]);
  simplify(s);
  return s;
}

void swap_dims(Space& s, int a, int b) {
  std::swap(s.shape[a], s.shape[b]);
  for (int t = 0; t < s.tensors; ++t) std::swap(s.strides[t][a], s.strides[t][b]);
}

template <class T>
void copy_run(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t n) {
  if (x_stride == 1 && y_stride == 1) {
    std::memcpy(y, x, size_t(n) * sizeof(T));
  } else if (x_stride == 0 && y_stride == 1) {
    std::fill(y, y + n, *x);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * y_stride] = x[i * x_stride];
  }
}

// Offsets of outer element i (all dimensions but the last `inner`).
void outer_offsets(const Space& s, int inner, int64_t i, int64_t* x, int64_t* y) {
  *x = *y = 0;
  for (int d = s.rank - 1 - inner; d >= 0; --d) {
    const int64_t at = i % s.shape[d];
    i /= s.shape[d];
    *x += at * s.strides[kX][d];
    *y += at * s.strides[kY][d];
  }
}

int64_t outer_size(const Space& s, int inner) {
  int64_t n = 1;
  for (int d = 0; d < s.rank - inner; ++d) n *= s.shape[d];
  return n;
}

template <class T>
void copy_runs(Context& context, const ct_copy_args& t, const Space& s) {
  constexpr int64_t kPiece = 16384;
  const int last = s.rank - 1;
  const int64_t length = s.shape[last], pieces = ceil_div(length, kPiece);
  const T* const x = static_cast<const T*>(t.x);
  T* const y = static_cast<T*>(t.y);
  context.parallel(outer_size(s, 1) * pieces, double(s.size()) * 0.15, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t xo, yo;
      outer_offsets(s, 1, i / pieces, &xo, &yo);
      const int64_t first = i % pieces * kPiece, n = std::min(kPiece, length - first);
      const int64_t xs = s.strides[kX][last], ys = s.strides[kY][last];
      copy_run(x + xo + first * xs, xs, y + yo + first * ys, ys, n);
    }
  });
}

// The last dimension is contiguous in y, the one before in x: squares of 64 x 64 change sides.
void copy_squares(Context& context, const ct_copy_args& t, const Space& s) {
  constexpr int64_t kSide = 64;
  const int last = s.rank - 1;
  const int64_t cols = s.shape[last - 1], rows = s.shape[last];
  const int64_t row_parts = ceil_div(rows, kSide), col_parts = ceil_div(cols, kSide);
  const float* const x = static_cast<const float*>(t.x);
  float* const y = static_cast<float*>(t.y);
  context.parallel(outer_size(s, 2) * row_parts * col_parts, double(s.size()) * 0.3, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t xo, yo;
      outer_offsets(s, 2, i / (row_parts * col_parts), &xo, &yo);
      const int64_t square = i % (row_parts * col_parts);
      const int64_t r = square / col_parts * kSide, c = square % col_parts * kSide;
      transpose(x + xo + r * s.strides[kX][last] + c, s.strides[kX][last], std::min(kSide, rows - r), std::min(kSide, cols - c),
                y + yo + c * s.strides[kY][last - 1] + r, s.strides[kY][last - 1]);
    }
  });
}

// Puts the dimension that is contiguous in x next to last; false when there is none worth it.
bool arrange_squares(Space& s) {
  const int last = s.rank - 1;
  if (last < 1 || s.strides[kY][last] != 1 || s.strides[kX][last] <= 1 || s.shape[last] < 4) return false;
  for (int d = last - 1; d >= 0; --d)
    if (s.strides[kX][d] == 1 && s.shape[d] >= 4 && s.strides[kY][d] > 0) {
      swap_dims(s, d, last - 1);
      return true;
    }
  return false;
}

// Three planes, four numbers a pixel: the fourth lies where the next pixel's first will be, so the last pixels are left to others.
// How many pixels were done.
int64_t interleave_three(const float* x, int64_t plane, int64_t n, float* y) {
  int64_t done = 0;
  for (; done + W < n; done += W) {
    vf lines[kQuad] = {load(x + done), load(x + plane + done), load(x + 2 * plane + done)};
    store_columns(lines, W, y + done * 3, 3);
  }
  return done;
}

// A few planes become the last dimension, as when pictures of three colours change their layout: each is read as it lies.
template <class T>
void interleave(Context& context, const ct_copy_args& t, const Space& s) {
  constexpr int64_t kPiece = 2048;
  const int last = s.rank - 1;
  const int64_t planes = s.shape[last], length = s.shape[last - 1], pieces = ceil_div(length, kPiece);
  const int64_t plane = s.strides[kX][last], step = s.strides[kY][last - 1];
  context.parallel(outer_size(s, 2) * pieces, double(s.size()) * 0.4, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t xo, yo;
      outer_offsets(s, 2, i / pieces, &xo, &yo);
      const int64_t first = i % pieces * kPiece, n = std::min(kPiece, length - first);
      const T* const x = static_cast<const T*>(t.x) + xo + first;
      T* const y = static_cast<T*>(t.y) + yo + first * step;
      int64_t done = 0;
      if (sizeof(T) == sizeof(float) && planes == 3 && step == 3)
        done = interleave_three(reinterpret_cast<const float*>(x), plane, n, reinterpret_cast<float*>(y));
      for (int64_t p = 0; p < planes; ++p) copy_run(x + p * plane + done, 1, y + p + done * step, step, n - done);
    }
  });
}

// Puts a long dimension that is contiguous in x before a short last one; false when there is none.
bool arrange_planes(Space& s) {
  const int last = s.rank - 1;
  if (last < 1 || s.shape[last] > 8 || s.strides[kY][last] != 1 || s.strides[kX][last] == 1) return false;
  for (int d = last - 1; d >= 0; --d)
    if (s.strides[kX][d] == 1 && s.shape[d] >= 16) {
      swap_dims(s, d, last - 1);
      return true;
    }
  return false;
}

template <class T>
int32_t copy_as(Context& context, const ct_copy_args& t, Space s) {
  arrange_planes(s) ? interleave<T>(context, t, s) : copy_runs<T>(context, t, s);
  return CT_OK;
}

}  // namespace

int32_t copy(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_copy_args*>(opaque);
  Space s = space_of(t);
  if (t.element_size == 4 && arrange_squares(s)) {
    copy_squares(context, t, s);
    return CT_OK;
  }
  switch (t.element_size) {
    case 1: return copy_as<uint8_t>(context, t, s);
    case 2: return copy_as<uint16_t>(context, t, s);
    case 4: return copy_as<uint32_t>(context, t, s);
    default: return copy_as<uint64_t>(context, t, s);
  }
}

int32_t fill(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_fill_args*>(opaque);
  constexpr int64_t kPiece = 16384;
  int32_t* const y = static_cast<int32_t*>(t.y);
  context.parallel(ceil_div(t.size, kPiece), double(t.size) * 0.1, [&](int, int64_t begin, int64_t end) {
    std::fill(y + begin * kPiece, y + std::min(end * kPiece, t.size), t.value_bits);
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
