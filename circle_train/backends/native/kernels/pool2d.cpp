// MAX_POOL_2D, AVERAGE_POOL_2D and their gradients. Gradients gather: each input pixel adds what the windows over it send back.
#include <algorithm>

#include "conv_shape.h"
#include "table.h"

namespace ct {
namespace CT_TIER {
namespace {

typedef uint8_t vb __attribute__((vector_size(W)));

struct Range {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

// The window positions of output `o` that lie inside the image.
Range cells_of(int64_t o, int64_t stride, int64_t pad, int64_t kernel, int64_t size) {
  const int64_t first = o * stride - pad;
  const int64_t begin = std::max<int64_t>(0, -first);
  return {begin, std::max(begin, std::min(kernel, size - first))};
}

// The outputs whose window covers input `i`.
Range outputs_of(int64_t i, int64_t stride, int64_t pad, int64_t kernel, int64_t outputs) {
  const int64_t low = i + pad - kernel + 1;
  const int64_t begin = low <= 0 ? 0 : ceil_div(low, stride);
  return {begin, std::max(begin, std::min(outputs, (i + pad) / stride + 1))};
}

template <class Lanes>
void store_index(uint8_t* to, vi index, Lanes lanes) {
  const vb bytes = __builtin_convertvector(index, vb);
  std::memcpy(to, &bytes, size_t(lanes));
}

template <class Lanes>
vi load_index(const uint8_t* from, Lanes lanes) {
  vb bytes{};
  std::memcpy(&bytes, from, size_t(lanes));
  return __builtin_convertvector(bytes, vi);
}

struct Window {
  int64_t input;   // offset of the window's corner cell (0, 0), possibly outside the image
  int64_t output;
  Range rows, cols;
};

// f(window) for every output pixel of rows begin..end (rows counted over the batch).
template <class F>
void each_window(const ct_conv_shape& s, int64_t begin, int64_t end, F f) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t n = r / s.out_h, oh = r % s.out_h;
    const Range rows = cells_of(oh, s.stride_h, s.pad_top, s.kernel_h, s.in_h);
    for (int64_t ow = 0; ow < s.out_w; ++ow) {
      const Range cols = cells_of(ow, s.stride_w, s.pad_left, s.kernel_w, s.in_w);
      const int64_t h0 = oh * s.stride_h - s.pad_top, w0 = ow * s.stride_w - s.pad_left;
      f(Window{((n * s.in_h + h0) * s.in_w + w0) * s.in_c, (r * s.out_w + ow) * s.in_c, rows, cols});
    }
  }
}

void max_window(const ct_pool_args& t, const Window& w, const Clamp& act) {
  const ct_conv_shape& s = t.shape;
  each_vector(s.in_c, [&](int64_t c, auto lanes) {
    vf best = splat(-std::numeric_limits<float>::infinity());
    vi where = vi{} + int32_t(w.rows.begin * s.kernel_w + w.cols.begin);
    for (int64_t kh = w.rows.begin; kh < w.rows.end; ++kh)
      for (int64_t kw = w.cols.begin; kw < w.cols.end; ++kw) {
        const vf v = load_some(t.x + w.input + (kh * s.in_w + kw) * s.in_c + c, lanes);
        const vi better = (v > best) | (v != v);
        best = better ? v : best;
        where = better ? vi{} + int32_t(kh * s.kernel_w + kw) : where;
      }
    store_some(t.y + w.output + c, activate(best, act), lanes);
    if (t.index) store_index(t.index + w.output + c, where, lanes);
  });
}

void average_window(const ct_pool_args& t, const Window& w, const Clamp& act) {
  const ct_conv_shape& s = t.shape;
  const float count = float(std::max<int64_t>(1, w.rows.count() * w.cols.count()));
  each_vector(s.in_c, [&](int64_t c, auto lanes) {
    vf total{};
    for (int64_t kh = w.rows.begin; kh < w.rows.end; ++kh) {
      vf row{};
      for (int64_t kw = w.cols.begin; kw < w.cols.end; ++kw)
        row += load_some(t.x + w.input + (kh * s.in_w + kw) * s.in_c + c, lanes);
      total += row;
    }
    store_some(t.y + w.output + c, activate(total / count, act), lanes);
  });
}

template <class F>
int32_t forward(Context& context, const void* opaque, F f) {
  const auto& t = *static_cast<const ct_pool_args*>(opaque);
  const Clamp act = clamp_of(t.act);
  const double work = double(out_pixels(t.shape)) * t.shape.in_c * t.shape.kernel_h * t.shape.kernel_w * 0.1;
  context.parallel(t.shape.batch * t.shape.out_h, work, [&](int, int64_t begin, int64_t end) {
    each_window(t.shape, begin, end, [&](const Window& w) { f(t, w, act); });
  });
  return CT_OK;
}

template <class Lanes>
void put(const ct_pool_args& t, const Clamp& out_mask, int64_t at, vf v, Lanes lanes) {
  if (t.accumulate) v += load_some(t.dx + at, lanes);
  if (t.out_mask_y) v = masked(v, load_some(t.out_mask_y + at, lanes), out_mask);
  store_some(t.dx + at, v, lanes);
}

template <class Lanes>
vf dy_at(const ct_pool_args& t, const Clamp& act, int64_t at, Lanes lanes) {
  const vf dy = load_some(t.dy + at, lanes);
  return t.act == CT_ACT_NONE ? dy : masked(dy, load_some(t.y + at, lanes), act);
}

// dx of every pixel of rows begin..end: the sum over the windows covering it of share(dy, output offset, cell, lanes, oh, ow).
template <class Share>
void gather_rows(const ct_pool_args& t, int64_t begin, int64_t end, Share share) {
  const ct_conv_shape& s = t.shape;
  const Clamp act = clamp_of(t.act), out_mask = clamp_of(t.out_mask_act);
  for (int64_t r = begin; r < end; ++r) {
    const int64_t n = r / s.in_h, h = r % s.in_h;
    const Range ohs = outputs_of(h, s.stride_h, s.pad_top, s.kernel_h, s.out_h);
    for (int64_t w = 0; w < s.in_w; ++w) {
      const Range ows = outputs_of(w, s.stride_w, s.pad_left, s.kernel_w, s.out_w);
      each_vector(s.in_c, [&](int64_t c, auto lanes) {
        vf total{};
        for (int64_t oh = ohs.begin; oh < ohs.end; ++oh)
          for (int64_t ow = ows.begin; ow < ows.end; ++ow) {
            const int64_t at = ((n * s.out_h + oh) * s.out_w + ow) * s.in_c + c;
            const int64_t kh = h + s.pad_top - oh * s.stride_h, kw = w + s.pad_left - ow * s.stride_w;
            total += share(dy_at(t, act, at, lanes), at, kh * s.kernel_w + kw, lanes, oh, ow);
          }
        put(t, out_mask, (r * s.in_w + w) * s.in_c + c, total, lanes);
      });
    }
  }
}

// Windows that neither overlap nor leave anything out: each output pixel writes its own cells.
bool windows_tile(const ct_conv_shape& s) {
  return s.kernel_h == s.stride_h && s.kernel_w == s.stride_w && s.out_h * s.stride_h - s.pad_top >= s.in_h &&
         s.out_w * s.stride_w - s.pad_left >= s.in_w;
}

void send_back(const ct_pool_args& t, const Window& w, const Clamp& act, const Clamp& out_mask) {
  const ct_conv_shape& s = t.shape;
  each_vector(s.in_c, [&](int64_t c, auto lanes) {
    const vf dy = dy_at(t, act, w.output + c, lanes);
    const vi where = load_index(t.index + w.output + c, lanes);
    for (int64_t kh = w.rows.begin; kh < w.rows.end; ++kh)
      for (int64_t kw = w.cols.begin; kw < w.cols.end; ++kw) {
        const vf v = where == vi{} + int32_t(kh * s.kernel_w + kw) ? dy : vf{};
        put(t, out_mask, w.input + (kh * s.in_w + kw) * s.in_c + c, v, lanes);
      }
  });
}

// Without indices the maxima are found again, one image at a time.
void max_pool_grad_again(const ct_pool_args& t, int64_t image) {
  const ct_conv_shape& s = t.shape;
  const Clamp act = clamp_of(t.act), out_mask = clamp_of(t.out_mask_act);
  const int64_t size = s.in_h * s.in_w * s.in_c;
  if (!t.accumulate) std::fill(t.dx + image * size, t.dx + (image + 1) * size, 0.0f);
  each_window(s, image * s.out_h, (image + 1) * s.out_h, [&](const Window& w) {
    for (int64_t c = 0; c < s.in_c; ++c) {
      int64_t where = -1;
      for (int64_t kh = w.rows.begin; kh < w.rows.end; ++kh)
        for (int64_t kw = w.cols.begin; kw < w.cols.end; ++kw) {
          const int64_t at = w.input + (kh * s.in_w + kw) * s.in_c + c;
          if (where < 0 || t.x[at] > t.x[where] || t.x[at] != t.x[at]) where = at;
        }
      if (where >= 0) t.dx[where] += dy_at(t, act, w.output + c, 1)[0];
    }
  });
  if (!t.out_mask_y) return;
  each_vector(size, [&](int64_t i, auto lanes) {
    const int64_t at = image * size + i;
    store_some(t.dx + at, masked(load_some(t.dx + at, lanes), load_some(t.out_mask_y + at, lanes), out_mask), lanes);
  });
}

}  // namespace

int32_t max_pool(Context& context, const void* opaque) { return forward(context, opaque, max_window); }

int32_t average_pool(Context& context, const void* opaque) { return forward(context, opaque, average_window); }

int32_t max_pool_grad(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_pool_args*>(opaque);
  const double work = double(in_pixels(t.shape)) * t.shape.in_c * 0.3;
  if (!t.index) {
    context.parallel(t.shape.batch, work * 10, [&](int, int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) max_pool_grad_again(t, n);
    });
    return CT_OK;
  }
  if (windows_tile(t.shape)) {
    const Clamp act = clamp_of(t.act), out_mask = clamp_of(t.out_mask_act);
    context.parallel(t.shape.batch * t.shape.out_h, work, [&](int, int64_t begin, int64_t end) {
      each_window(t.shape, begin, end, [&](const Window& w) { send_back(t, w, act, out_mask); });
    });
    return CT_OK;
  }
  context.parallel(t.shape.batch * t.shape.in_h, work, [&](int, int64_t begin, int64_t end) {
    gather_rows(t, begin, end, [&](vf dy, int64_t at, int64_t cell, auto lanes, int64_t, int64_t) {
      return load_index(t.index + at, lanes) == vi{} + int32_t(cell) ? dy : vf{};
    });
  });
  return CT_OK;
}

int32_t average_pool_grad(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_pool_args*>(opaque);
  const ct_conv_shape& s = t.shape;
  const double work = double(in_pixels(s)) * s.in_c * 0.3;
  context.parallel(s.batch * s.in_h, work, [&](int, int64_t begin, int64_t end) {
    gather_rows(t, begin, end, [&](vf dy, int64_t, int64_t, int, int64_t oh, int64_t ow) {
      const int64_t count = cells_of(oh, s.stride_h, s.pad_top, s.kernel_h, s.in_h).count() *
                            cells_of(ow, s.stride_w, s.pad_left, s.kernel_w, s.in_w).count();
      return dy / float(count);
    });
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
