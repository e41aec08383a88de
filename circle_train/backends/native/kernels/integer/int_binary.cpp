// Sums, differences and products of bytes.
#include <algorithm>

#include "integer/requantize.h"
#include "run/table.h"
#include "vectors/strides.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int kA = 0, kB = 1;
constexpr int64_t kPiece = 4096;

vi operand(const uint8_t* p, int64_t stride, int64_t i, int lanes, int32_t flip) {
  if (stride == 1) return load_bytes(p + i, lanes, flip);
  vi v{};
  if (stride == 0) return v + (*p ^ flip);
  for (int lane = 0; lane < lanes; ++lane) v[lane] = p[(i + lane) * stride] ^ flip;
  return v;
}

inline vi result(const ct_int_binary_args& t, const Range& range, vi a, vi b) {
  if (t.shift) return range.within((a * t.factor_a + b * t.factor_b + t.bias) >> t.shift);
  const vf va = to_float(a), vb = to_float(b);
  return range.bytes_of(va * (vb * t.scale_ab + t.scale_a) + (vb * t.scale_b + t.offset));
}

}  // namespace

int32_t int_binary(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_int_binary_args*>(opaque);
  Space s;
  s.rank = t.rank, s.tensors = 2;
  std::copy(t.shape, t.shape + t.rank, s.shape);
  std::copy(t.a_strides, t.a_strides + t.rank, s.strides[kA]);
  std::copy(t.b_strides, t.b_strides + t.rank, s.strides[kB]);
  simplify(s);
  const int64_t size = s.size(), a_stride = s.strides[kA][s.rank - 1], b_stride = s.strides[kB][s.rank - 1];
  const Range range(t);
  context.parallel(ceil_div(size, kPiece), double(size) * 0.2, [&](int, int64_t begin, int64_t end) {
    const int64_t first = begin * kPiece, count = std::min(end * kPiece, size) - first;
    int64_t b_offset = 0;
    each_run(s, kA, first, count, [&](int64_t n, int64_t a_at, int64_t done) {
      each_run(s, kB, first + done, 1, [&](int64_t, int64_t at, int64_t) { b_offset = at; });
      const uint8_t *const a = t.a + a_at, *const b = t.b + b_offset;
      uint8_t* const y = t.y + first + done;
      each_vector(n, [&](int64_t i, auto lanes) {
        store_bytes(y + i, result(t, range, operand(a, a_stride, i, lanes, t.a_flip), operand(b, b_stride, i, lanes, t.b_flip)), lanes);
      });
    });
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
