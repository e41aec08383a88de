// Rows by index, and their gradient. Indices are data: one outside its range stops the run.
#include <algorithm>
#include <cstring>

#include "update/optimizer.h"
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

constexpr int64_t kNamed = 64;
constexpr int64_t kAhead = 8;

// Rows lie anywhere: those that will be wanted soon are asked for now.
void ask_for(const float* row, int64_t width) {
  for (int64_t i = 0; i < std::min<int64_t>(width, 256); i += 16) __builtin_prefetch(row + i, 0, 2);
}

// The same of a row whose positions are the low bits of order[0..n).
void update_named(const ct_scatter_add_args& t, int64_t row, const int64_t* order, int64_t n) {
  for (int64_t c = 0; c < t.width; c += kPiece) {
    const int64_t columns = std::min(kPiece, t.width - c);
    float total[kPiece];
    std::fill(total, total + columns, 0.0f);
    for (int64_t j = 0; j < n; ++j) {
      const float* const dy = t.dy + (order[j] & 0x7fffffff) * t.width + c;
      each_vector(columns, [&](int64_t i, auto lanes) { store_some(total + i, load_some(total + i, lanes) + load_some(dy + i, lanes), lanes); });
    }
    apply_update(t.update, row * t.width + c, total, columns);
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
      if (i % t.count + kAhead < t.count && row_of(t, i % t.count + kAhead, &row))
        ask_for(x + (i / t.count * t.rows + row) * t.width, t.width);
      row_of(t, i % t.count, &row);
      std::memcpy(y + i * t.width, x + (i / t.count * t.rows + row) * t.width, size_t(t.width) * sizeof(float));
    }
  });
  return CT_OK;
}

// One row's place; false where it has none.
static bool place_of(const ct_flat_index_args& t, int64_t i, int64_t* place) {
  *place = t.group > 0 ? i / t.group * t.sizes[0] : 0;
  for (int32_t d = 0; d < t.depth; ++d) {
    const int64_t at = i * t.depth + d;
    int64_t c = t.index_bytes == 8 ? static_cast<const int64_t*>(t.coordinates)[at] : static_cast<const int32_t*>(t.coordinates)[at];
    if (c < 0 && t.wraps) c += t.sizes[d];
    if (c < 0 && t.drops) {
      *place = t.sizes[0];
      return true;
    }
    if (c < 0 || c >= t.sizes[d]) return false;
    if (t.group > 0) *place += c;
    else *place = *place * t.sizes[d] + c;
  }
  return true;
}

int32_t flat_index(Context&, const void* opaque) {
  const auto& t = *static_cast<const ct_flat_index_args*>(opaque);
  for (int64_t i = 0; i < t.count; ++i) {
    int64_t place;
    if (!place_of(t, i, &place)) return CT_BAD_INDEX;
    t.flat[i] = int32_t(place);
  }
  return CT_OK;
}

namespace {

bool names_few(const ct_scatter_add_args& t) {
  return t.outer == 1 && rests_without_gradient(t.update) && t.count < t.rows && t.rows < (int64_t(1) << 31);
}

}  // namespace

int64_t scatter_add_scratch(const void* opaque, int) {
  const auto& t = *static_cast<const ct_scatter_add_args*>(opaque);
  Carver lists(nullptr), order(nullptr);  // which of them it will be, numbers say that are written from outside
  carve(lists, t);
  order.take<int64_t>(t.count);
  return std::max(lists.used(), order.used());
}

namespace {

// Where rows without gradient stay as they are, only those that are named are walked: positions sorted by row.
int32_t scatter_named(Context& context, const ct_scatter_add_args& t, int64_t* order) {
  for (int64_t j = 0; j < t.count; ++j) {
    int64_t row;
    if (!row_of(t, j, &row)) return CT_BAD_INDEX;
    order[j] = row << 31 | j;
  }
  std::sort(order, order + t.count);
  // A run of one row belongs to the unit in which it begins.
  context.parallel(ceil_div(t.count, kNamed), double(t.count) * t.width * 0.3, [&](int, int64_t begin, int64_t end) {
    const int64_t stop = std::min(end * kNamed, t.count);
    int64_t i = begin * kNamed;
    while (i > 0 && i < stop && order[i] >> 31 == order[i - 1] >> 31) ++i;
    while (i < stop) {
      if (i + kAhead < t.count) {
        ask_for(t.update.w + (order[i + kAhead] >> 31) * t.width, t.width);
        ask_for(t.dy + (order[i + kAhead] & 0x7fffffff) * t.width, t.width);
      }
      int64_t next = i + 1;
      while (next < t.count && order[next] >> 31 == order[i] >> 31) ++next;
      update_named(t, order[i] >> 31, order + i, next - i);
      i = next;
    }
  });
  return CT_OK;
}

}  // namespace

int32_t scatter_add(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_scatter_add_args*>(opaque);
  Carver carver(context.scratch());
  if (names_few(t)) return scatter_named(context, t, carver.take<int64_t>(t.count));
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
