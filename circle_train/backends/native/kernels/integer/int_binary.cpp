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

vf operand(const uint8_t* p, int64_t stride, int64_t i, int lanes, int32_t flip) {
  if (stride == 1) return to_float(load_bytes(p + i, lanes, flip));
  if (stride == 0) return splat(float(*p ^ flip));
  vf v{};
  for (int lane = 0; lane < lanes; ++lane) v[lane] = float(p[(i + lane) * stride] ^ flip);
  return v;
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
        const vf va = operand(a, a_stride, i, lanes, t.a_flip), vb = operand(b, b_stride, i, lanes, t.b_flip);
        const vf real = va * (vb * t.scale_ab + t.scale_a) + (vb * t.scale_b + t.offset);
        store_bytes(y + i, range.bytes_of(real), lanes);
      });
    });
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
