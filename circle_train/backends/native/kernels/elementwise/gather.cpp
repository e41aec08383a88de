// Rows by index, and their gradient. Indices are data: one outside its range stops the run.
#include <algorithm>
#include <cstring>

#include "elementwise/optimizer.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

// The row that the j-th index names; false when there is none. Serves both argument structs.
template <class Args>
bool row_of(const Args& t, int64_t j, int64_t* row) {
  const int64_t index = t.index_bytes == 8 ? static_cast<const int64_t*>(t.index)[j] : static_cast<const int32_t*>(t.index)[j];
  *row = index < 0 ? index + t.rows : index;
  return *row >= 0 && *row < t.rows;
}

// Which positions name each row, as linked lists in order: heads[row] -> position -> next[position]; -1 ends.
struct Lists {
  int32_t* heads;
  int32_t* next;
};

Lists carve(Carver& carver, const ct_scatter_add_args& t) { return {carver.take<int32_t>(t.rows), carver.take<int32_t>(t.count)}; }

bool build(const ct_scatter_add_args& t, const Lists& lists) {
  std::fill(lists.heads, lists.heads + t.rows, -1);
  for (int64_t j = t.count - 1; j >= 0; --j) {
    int64_t row;
    if (!row_of(t, j, &row)) return false;
    lists.next[j] = lists.heads[row];
    lists.heads[row] = int32_t(j);
  }
  return true;
}

constexpr int64_t kPiece = 256;

// The sum of a row's gradients, in pieces that stay in registers' reach.
void update_row(const ct_scatter_add_args& t, const Lists& lists, int64_t outer, int64_t row) {
  const int64_t at = (outer * t.rows + row) * t.width;
  if (lists.heads[row] < 0) return apply_zero_update(t.update, at, t.width);
  for (int64_t c = 0; c < t.width; c += kPiece) {
    const int64_t n = std::min(kPiece, t.width - c);
    float total[kPiece];
    std::fill(total, total + n, 0.0f);
    for (int32_t j = lists.heads[row]; j >= 0; j = lists.next[j]) {
      const float* const dy = t.dy + (outer * t.count + j) * t.width + c;
      each_vector(n, [&](int64_t i, auto lanes) { store_some(total + i, load_some(total + i, lanes) + load_some(dy + i, lanes), lanes); });
    }
    apply_update(t.update, at + c, total, n);
  }
}

// Neighbouring rows without gradient are one sweep.
void update_rows(const ct_scatter_add_args& t, const Lists& lists, int64_t outer, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end;) {
    int64_t empty = row;
    while (empty < end && lists.heads[empty] < 0) ++empty;
    if (empty > row) apply_zero_update(t.update, (outer * t.rows + row) * t.width, (empty - row) * t.width);
    if (empty < end) update_row(t, lists, outer, empty++);
    row = empty;
  }
}

}  // namespace

int32_t gather(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_gather_args*>(opaque);
  const float* const x = static_cast<const float*>(t.x);
  float* const y = static_cast<float*>(t.y);
  for (int64_t j = 0; j < t.count; ++j) {
    int64_t row;
    if (!row_of(t, j, &row)) return CT_BAD_INDEX;
  }
  context.parallel(t.outer * t.count, double(t.outer) * t.count * (t.width * 0.1 + 2), [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t row;
      row_of(t, i % t.count, &row);
      std::memcpy(y + i * t.width, x + (i / t.count * t.rows + row) * t.width, size_t(t.width) * sizeof(float));
    }
  });
  return CT_OK;
}

int64_t scatter_add_scratch(const void* opaque, int) {
  Carver carver(nullptr);
  carve(carver, *static_cast<const ct_scatter_add_args*>(opaque));
  return carver.used();
}

int32_t scatter_add(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_scatter_add_args*>(opaque);
  Carver carver(context.scratch());
  const Lists lists = carve(carver, t);
  if (!build(t, lists)) return CT_BAD_INDEX;
  const int64_t block = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, t.width));
  const int64_t blocks = ceil_div(t.rows, block);
  context.parallel(t.outer * blocks, double(t.outer) * t.rows * t.width * 0.3, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * block;
      update_rows(t, lists, i / blocks, first, std::min(first + block, t.rows));
    }
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
