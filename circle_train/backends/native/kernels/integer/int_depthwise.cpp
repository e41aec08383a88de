// Depthwise convolutions of bytes, and of int16 with bytes, 64 channels at a time.
#include "integer/requantize.h"
#include "integer/window.h"
#include "run/processor.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kBlock = CT_INT_OUTPUTS;

struct Memory {
  Memory(Carver& carver, const ct_conv_shape& s, const Parts& parts)
      : cells(carver.take<uint8_t>(parts.cells() + kBeyond)),
        offsets(carver.take<int64_t>(round_up(s.kernel_h * s.kernel_w, 4))),
        weights(carver.take<int8_t>(round_up(s.kernel_h * s.kernel_w, 4) * kBlock)) {}
  uint8_t* cells;
  int64_t* offsets;  // from a window's begin to each of its cells
  int8_t* weights;   // of a block of channels
};

// A block of channels of one part.
struct Block {
  const ct_int_conv_args& t;
  const Parts& parts;
  const Memory& m;
  Part part;
  int64_t channel, channels;

  int64_t taps() const { return t.shape.kernel_h * t.shape.kernel_w; }
  const uint8_t* window(int64_t row, int64_t column) const {
    return m.cells + row * t.shape.stride_h * parts.pitch() + column * t.shape.stride_w * t.shape.in_c + channel;
  }
  uint8_t* output(int64_t row, int64_t column) const {
    const ct_conv_shape& s = t.shape;
    return t.y + ((part.image * s.out_h + part.row + row) * s.out_w + part.column + column) * s.out_c + channel;
  }
};

void tap_by_tap(const Block& b) {
  const Range range(b.t);
  alignas(CT_ALIGNMENT) int32_t sums[kBlock], cells[kBlock];
  for (int64_t r = 0; r < b.part.rows; ++r)
    for (int64_t c = 0; c < b.part.columns; ++c) {
      const uint8_t* const window = b.window(r, c);
      std::fill(sums, sums + kBlock, 0);
      std::fill(cells, cells + kBlock, 0);
      for (int64_t tap = 0; tap < b.taps(); ++tap) {
        const uint8_t* const x = window + b.m.offsets[tap];
        const int8_t* const w = b.t.w + tap * b.t.shape.out_c + b.channel;
        for (int64_t i = 0; i < b.channels; ++i) sums[i] += int32_t(x[i]) * w[i], cells[i] += x[i];
      }
      for (int64_t i = 0; i < b.channels; ++i) sums[i] -= b.t.w_zero * cells[i];
      requantize(sums, b.t.bias + b.channel, b.t.scale + b.channel, b.channels, 0, range, b.output(r, c));
    }
}

#if defined(__AVX512F__)
struct Four {
  __m512i of[4];
};

// Bytes of four vectors side by side: lane 4L + j of the v-th result has channel 16L + 4v + j, all four bytes of it.
inline Four interleaved(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i low_ab = _mm512_unpacklo_epi8(a, b), high_ab = _mm512_unpackhi_epi8(a, b);
  const __m512i low_cd = _mm512_unpacklo_epi8(c, d), high_cd = _mm512_unpackhi_epi8(c, d);
  return {{_mm512_unpacklo_epi16(low_ab, low_cd), _mm512_unpackhi_epi16(low_ab, low_cd),
           _mm512_unpacklo_epi16(high_ab, high_cd), _mm512_unpackhi_epi16(high_ab, high_cd)}};
}

// 64 numbers of 32 bits in that order.
inline Four in_that_order(const void* from) {
  const __m512i* const p = static_cast<const __m512i*>(from);
  const __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 1), c = _mm512_loadu_si512(p + 2), d = _mm512_loadu_si512(p + 3);
  const __m512i ab_low = _mm512_shuffle_i32x4(a, b, 0x44), ab_high = _mm512_shuffle_i32x4(a, b, 0xee);
  const __m512i cd_low = _mm512_shuffle_i32x4(c, d, 0x44), cd_high = _mm512_shuffle_i32x4(c, d, 0xee);
  // Quarter v of each of a, b, c, d.
  return {{_mm512_shuffle_i32x4(ab_low, cd_low, 0x88), _mm512_shuffle_i32x4(ab_low, cd_low, 0xdd),
           _mm512_shuffle_i32x4(ab_high, cd_high, 0x88), _mm512_shuffle_i32x4(ab_high, cd_high, 0xdd)}};
}

// The low bytes, back in the channels' order.
inline __m512i bytes_of(const Four& v) {
  const __m512i mask = _mm512_set1_epi16(0xff);
  const __m512i low = _mm512_and_si512(_mm512_packs_epi32(v.of[0], v.of[1]), mask);
  const __m512i high = _mm512_and_si512(_mm512_packs_epi32(v.of[2], v.of[3]), mask);
  return _mm512_packus_epi16(low, high);
}

template <bool kHasZero>
__attribute__((target("avx512vnni"))) void four_taps(const Block& b) {
  const int64_t taps = b.taps(), fours = ceil_div(taps, 4);
  const __mmask64 some = b.channels == 64 ? ~__mmask64(0) : (__mmask64(1) << b.channels) - 1;
  for (int64_t q = 0; q < fours; ++q) {
    __m512i row[4];
    for (int64_t i = 0; i < 4; ++i) {
      const int8_t* const w = b.t.w + (4 * q + i) * b.t.shape.out_c + b.channel;
      row[i] = 4 * q + i < taps ? _mm512_maskz_loadu_epi8(some, w) : _mm512_setzero_si512();
    }
    const Four w = interleaved(row[0], row[1], row[2], row[3]);
    for (int v = 0; v < 4; ++v) _mm512_store_si512(b.m.weights + (4 * q + v) * kBlock, w.of[v]);
  }
  const Four bias = in_that_order(b.t.bias + b.channel), scale = in_that_order(b.t.scale + b.channel);
  const Range range(b.t);
  const __m512i ones = _mm512_set1_epi8(1), w_zero = _mm512_set1_epi32(b.t.w_zero);
  // Where taps are no multiple of four, weights of 0 meet the last one's cells again.
  for (int64_t r = 0; r < b.part.rows; ++r)
    for (int64_t c = 0; c < b.part.columns; ++c) {
      const uint8_t* const window = b.window(r, c);
      Four acc = bias, sums{};
      for (int v = 0; v < 4; ++v) sums.of[v] = _mm512_setzero_si512();
      for (int64_t q = 0; q < fours; ++q) {
        const int64_t* const at = b.m.offsets + 4 * q;
        __m512i x[4];
        for (int i = 0; i < 4; ++i)
          x[i] = kHasZero && 4 * q + i >= taps ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi8(some, window + at[i]);
        const Four cells = interleaved(x[0], x[1], x[2], x[3]);
        for (int v = 0; v < 4; ++v) {
          acc.of[v] = _mm512_dpbusd_epi32(acc.of[v], cells.of[v], _mm512_load_si512(b.m.weights + (4 * q + v) * kBlock));
          if (kHasZero) sums.of[v] = _mm512_dpbusd_epi32(sums.of[v], cells.of[v], ones);
        }
      }
      for (int v = 0; v < 4; ++v) {
        if (kHasZero) acc.of[v] = _mm512_sub_epi32(acc.of[v], _mm512_mullo_epi32(sums.of[v], w_zero));
        acc.of[v] = (__m512i)range.bytes_of(to_float((vi)acc.of[v]) * (vf)scale.of[v]);
      }
      _mm512_mask_storeu_epi8(b.output(r, c), some, bytes_of(acc));
    }
}
#endif

using BlockFunction = void (*)(const Block&);

BlockFunction block_function(bool has_zero) {
#if defined(__AVX512F__)
  if (processor().avx512_vnni) return has_zero ? four_taps<true> : four_taps<false>;
#endif
  (void)has_zero;
  return tap_by_tap;
}

// The window's cells as they lie, those beside the image left out.
void sum_shorts(const ct_int_conv_args& t, int64_t image, int64_t top, int64_t left, int64_t channel, int64_t channels, int32_t* sums) {
  const ct_conv_shape& s = t.shape;
  std::fill(sums, sums + kBlock, 0);
  for (int64_t tap = 0; tap < s.kernel_h * s.kernel_w; ++tap) {
    const int64_t row = top + tap / s.kernel_w * s.dilation_h, column = left + tap % s.kernel_w * s.dilation_w;
    if (row < 0 || row >= s.in_h || column < 0 || column >= s.in_w) continue;
    const int16_t* const x = reinterpret_cast<const int16_t*>(t.x) + ((image * s.in_h + row) * s.in_w + column) * s.in_c + channel;
    const int8_t* const w = t.w + tap * s.out_c + channel;
    for (int64_t i = 0; i < channels; ++i) sums[i] += int32_t(x[i]) * w[i];
  }
}

int32_t of_shorts(Context& context, const ct_int_conv_args& t, double products) {
  const ct_conv_shape& s = t.shape;
  context.parallel(s.batch * s.out_h, products / 8, [&](int, int64_t begin, int64_t end) {
    alignas(CT_ALIGNMENT) int32_t sums[kBlock];
    for (int64_t row = begin; row < end; ++row)
      for (int64_t column = 0; column < s.out_w; ++column)
        for (int64_t channel = 0; channel < s.out_c; channel += kBlock) {
          const int64_t channels = std::min(kBlock, s.out_c - channel), top = row % s.out_h * s.stride_h - s.pad_top;
          sum_shorts(t, row / s.out_h, top, column * s.stride_w - s.pad_left, channel, channels, sums);
          to_shorts(t, sums, channel, channels, row * s.out_w + column, channel);
        }
  });
  return CT_OK;
}

int64_t memory_bytes(const ct_conv_shape& shape, const Parts& parts) {
  Carver carver(nullptr);
  Memory memory(carver, shape, parts);
  return carver.used();
}

}  // namespace

int64_t int_depthwise_scratch(const void* opaque, int threads) {
  const auto& t = *static_cast<const ct_int_conv_args*>(opaque);
  return memory_bytes(t.shape, Parts(t.shape)) * threads;
}

int32_t int_depthwise(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_int_conv_args*>(opaque);
  const ct_conv_shape& s = t.shape;
  const int64_t taps = s.kernel_h * s.kernel_w;
  const double products = double(s.batch * s.out_h * s.out_w) * double(s.out_c * taps);
  if (t.shift) return of_shorts(context, t, products);
  const Parts parts(s);
  const int64_t bytes = memory_bytes(s, parts);
  const BlockFunction run = block_function(t.w_zero != 0);
  context.parallel(parts.count(), products / 16, [&](int worker, int64_t begin, int64_t end) {
    Carver carver(context.scratch() + worker * bytes);
    const Memory m(carver, s, parts);
    for (int64_t tap = 0; tap < round_up(taps, 4); ++tap) {
      const int64_t known = std::min(tap, taps - 1);
      m.offsets[tap] = known / s.kernel_w * s.dilation_h * parts.pitch() + known % s.kernel_w * s.dilation_w * s.in_c;
    }
    for (int64_t unit = begin; unit < end; ++unit) {
      Block block{t, parts, m, parts.at(unit), 0, 0};
      fill_part(t, parts, block.part, m.cells);
      for (; block.channel < s.out_c; block.channel += kBlock) {
        block.channels = std::min(kBlock, s.out_c - block.channel);
        run(block);
      }
    }
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
