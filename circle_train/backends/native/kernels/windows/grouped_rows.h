// Products of groups, alike but for what they read and write. All groups take a stretch of rows before any takes the next: what the
// next one reads is asked for meanwhile, and what they make can go where it belongs together.
#pragma once

#include <algorithm>

#include "product/gemm.h"
#include "product/pack.h"
#include "vectors/ahead.h"

namespace ct {
namespace CT_TIER {

// Memory that some rows of all groups read.
struct Reach {
  const float *begin, *end;
};

// with(group, f) calls f(product), reach(first, rows) says what windows are gathered from. A product's sink takes the rows of all groups,
// whose columns lie side by side.
template <class With, class Reaches>
class GroupedRows {
 public:
  // `wide`: floats of the images that a row reads and writes, of all groups.
  GroupedRows(int64_t groups, int64_t wide, With with, Reaches reach) : groups_(groups), with_(with), reach_(reach) {
    with_(0, [&](const RowsProduct& p) { one_ = p; });
    const int64_t near = std::max<int64_t>(1, kNear / std::max<int64_t>(1, wide) / kLeast) * kLeast;
    stretch_ = std::max(kLeast, std::min(near, ceil_div(one_.m, kUnits)));
    panels_ = round_up(packed_size(one_.k, one_.n), 16);
    made_ = one_.sink ? round_up(stretch_ * groups_ * one_.n, 16) : 0;
    one_.m = std::min(stretch_, one_.m), one_.sink = nullptr;
    own_ = made_ + round_up(rows_alone_scratch(one_), CT_ALIGNMENT) / int64_t(sizeof(float));
  }

  int64_t scratch(int workers) const {
    Carver carver(nullptr);
    carver.take<float>(groups_ * panels_);
    carver.take<float>(own_ * workers);
    return carver.used();
  }

  void run(Context& context, char* scratch) const {
    Carver carver(scratch);
    float* const panels = carver.take<float>(groups_ * panels_);
    float* const mine = carver.take<float>(own_ * context.workers());
    int64_t rows = 0;
    with_(0, [&](const RowsProduct& p) { rows = p.m; });
    const double weights = double(groups_) * one_.k * one_.n;
    context.parallel(groups_, weights * 0.3, [&](int, int64_t begin, int64_t end) {
      Context alone(nullptr, nullptr);
      for (int64_t g = begin; g < end; ++g) with_(g, [&](const RowsProduct& p) { keep_panels(alone, p, panels + g * panels_); });
    });
    context.parallel(ceil_div(rows, stretch_), weights * rows / 80, [&](int worker, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i * stretch_, next = std::min(first + stretch_, rows);
        const bool asks = one_.source && i + 1 < end;
        take(panels, mine + worker * own_, first, next - first, asks ? std::min(stretch_, rows - next) : 0);
      }
    });
  }

 private:
  static constexpr int64_t kNear = 96 << 10;  // floats of images that stay in the second-level cache
  static constexpr int64_t kLeast = 96, kUnits = 16;

  // `count` rows of all groups, while as many of the next as are wanted are asked for.
  void take(const float* panels, float* own, int64_t first, int64_t count, int64_t wanted) const {
    Ahead ahead;
    if (wanted) {
      const Reach all = reach_(first + count, wanted);
      ahead.add(all.begin, all.end - all.begin, all.end, groups_);
    }
    for (int64_t g = 0; g < groups_; ++g, ahead.step())
      with_(g, [&](RowsProduct& p) {
        p.first = first, p.m = count;
        p.panels = panels + g * panels_;
        if (p.a) p.a += first * p.a_row;
        if (p.add) p.add += first * p.c_row;
        if (p.out_mask) p.out_mask += first * p.c_row;
        if (p.c) p.c += first * p.c_row;
        if (p.sink) p.c = own + g * p.n, p.c_row = groups_ * p.n;
        const RowSink* const to = p.sink;
        p.sink = nullptr;
        run_rows_alone(p, reinterpret_cast<char*>(own + made_));
        if (to && g + 1 == groups_) to->rows(first, count, own, groups_ * p.n);
      });
  }

  int64_t groups_;
  With with_;
  Reaches reach_;
  RowsProduct one_;  // a stretch of one group
  int64_t stretch_, panels_, made_, own_;
};

}  // namespace CT_TIER
}  // namespace ct
