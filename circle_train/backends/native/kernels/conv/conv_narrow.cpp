#include "conv/conv_narrow.h"

#include <algorithm>

#include "vectors/activation.h"
#include "product/narrow_rows.h"
#include "product/pack.h"
#include "pooling/pool_rows.h"
#include "run/table.h"
#include "product/tile.h"

namespace ct {
namespace CT_TIER {
namespace {

// One worker's room for rows.
struct Room {
  float *padded, *windows, *band;
};

// Columns of the weights as they lie: whole vectors, the last one filled up with zeros.
int64_t columns(const ct_conv_shape& s) { return round_up(s.out_c, W); }

// A product of an output row's pixels, their windows' floats a at `step` from each other, with the weights of `cells` floats.
void multiply_row(const ct_conv_args& t, const float* a, int64_t step, int64_t cells, const float* weights, bool first, bool last, float* y) {
  const ct_conv_shape& s = t.shape;
  const Clamp act = clamp_of(t.act);
  for (int64_t j = 0; j < s.out_c; j += kTileCols) {
    const int64_t left = s.out_c - j, tail = left < kTileCols ? left % W : 0;
    for (int64_t i = 0; i < s.out_w; i += kTileRows) {
      const int rows = int(std::min<int64_t>(kTileRows, s.out_w - i));
      TileEnd end{y + i * s.out_c + j, s.out_c, last && t.b ? t.b + j : nullptr, act.low, act.high,
                  !first, last && unbent(t.act) != CT_ACT_NONE, false};
      end.tail = tail;
      end.ask = reinterpret_cast<const char*>(a);
      tile_for(rows, left > W ? 2 : 1, tail != 0)(a + i * step, step, 1, weights + j, columns(s), cells, end);
    }
  }
}

// A whole output row; the last sum adds what follows, but no curve.
void sum_row(const ct_conv_args& t, const float* weights, int64_t out_row, const Room& room, float* y) {
  const ct_conv_shape& s = t.shape;
  const int64_t run = run_floats(s), size = window_floats(s), top = out_row % s.out_h * s.stride_h - s.pad_top;
  if (gathers(s)) {
    gather_windows(s, t.x, out_row, room.padded, room.windows);
    return multiply_row(t, room.windows, size, size, weights, true, true, y);
  }
  int64_t last = -1;
  for (int64_t kh = 0; kh < s.kernel_h; ++kh)
    if (const int64_t h = top + kh * s.dilation_h; h >= 0 && h < s.in_h) last = kh;
  if (last < 0) {
    const Clamp act = clamp_of(unbent(t.act));
    for (int64_t i = 0; i < s.out_w; ++i)
      each_vector(s.out_c, [&](int64_t j, auto lanes) {
        store_some(y + i * s.out_c + j, activate(t.b ? load_some(t.b + j, lanes) : vf{}, act), lanes);
      });
    return;
  }
  bool first = true;
  each_kernel_row(s, t.x, out_row, room.padded, [&](int64_t kh, const float* x) {
    multiply_row(t, x, s.stride_w * s.in_c, run, weights + kh * run * columns(s), first, kh == last, y);
    first = false;
  });
}

void forward_row(const ct_conv_args& t, const float* weights, int64_t out_row, const Room& room, float* y) {
  sum_row(t, weights, out_row, room, y);
  if (is_curve(t.act)) bend(t.act, y, 1, t.shape.out_w * t.shape.out_c, 0);
}

// What workers need forward: weights (window cells x outputs), and rows, with a pool's those below one of its outputs.
struct Forward {
  Forward(const ct_conv_args& t, const ct_conv_shape* pool, char* scratch, int workers) {
    const ct_conv_shape& s = t.shape;
    Carver carver(scratch);
    padded = row_floats(s), gathered = gathered_floats(s);
    own = padded + gathered + (pool ? round_up(pool->kernel_h * s.out_w * s.out_c, kApart) : 0);
    weights = carver.take<float>(window_floats(s) * columns(s));
    mine = carver.take<float>(own * workers);
    size = carver.used();
  }
  Room room(int worker) const {
    float* const at = mine + worker * own;
    return {at, at + padded, at + padded + gathered};
  }
  int64_t padded, gathered, own, size;
  float *weights, *mine;
};

void turn_weights(const ct_conv_args& t, float* weights) {
  const ct_conv_shape& s = t.shape;
  if (columns(s) != s.out_c) zero_floats(weights, window_floats(s) * columns(s));
  transpose(t.w, window_floats(s), s.out_c, window_floats(s), weights, columns(s));
}

double forward_nanoseconds(const ct_conv_shape& s) { return double(out_pixels(s)) * s.out_c * (window_floats(s) / 60.0 + 0.1); }

}  // namespace

bool is_narrow(const ct_conv_args& t) { return is_narrow(t.shape) && !t.add; }

int64_t narrow_scratch(const ct_conv_args& t, int workers) { return Forward(t, nullptr, nullptr, workers).size; }

void run_narrow(Context& context, const ct_conv_args& t) {
  const ct_conv_shape& s = t.shape;
  const Forward f(t, nullptr, context.scratch(), context.workers());
  turn_weights(t, f.weights);
  context.parallel(s.batch * s.out_h, forward_nanoseconds(s), [&](int worker, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) forward_row(t, f.weights, row, f.room(worker), t.y + row * s.out_w * s.out_c);
  });
}

int64_t conv_pool_scratch(const void* opaque, int threads) {
  const auto& t = *static_cast<const ct_conv_pool_args*>(opaque);
  return Forward(t.conv, &t.pool.shape, nullptr, threads).size;
}

int32_t conv_pool(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_conv_pool_args*>(opaque);
  const ct_conv_shape& s = t.conv.shape;
  const Forward f(t.conv, &t.pool.shape, context.scratch(), context.workers());
  turn_weights(t.conv, f.weights);
  context.parallel(s.batch * t.pool.shape.out_h, forward_nanoseconds(s), [&](int worker, int64_t begin, int64_t end) {
    const Room room = f.room(worker);
    for (int64_t row = begin; row < end; ++row) {
      const RowsBelow below = rows_below(t.pool.shape, row);
      for (int64_t i = 0; i < below.count; ++i) forward_row(t.conv, f.weights, below.first + i, room, room.band + i * s.out_w * s.out_c);
      max_pool_row(t.pool, row, room.band);
    }
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
