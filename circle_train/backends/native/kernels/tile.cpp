#include "tile.h"

#include <utility>

namespace ct {
namespace CT_TIER {
namespace {

struct Tiles {
  TileFunction of[2][kTileVectors][kTileRows];
};

template <int... R>
constexpr Tiles all_tiles(std::integer_sequence<int, R...>) {
  return Tiles{{{{tile<R + 1, 1, false>...}, {tile<R + 1, 2, false>...}}, {{tile<R + 1, 1, true>...}, {tile<R + 1, 2, true>...}}}};
}

constexpr Tiles tiles = all_tiles(std::make_integer_sequence<int, kTileRows>());

}  // namespace

TileFunction tile_for(int rows, int vectors, bool more) { return tiles.of[more][vectors - 1][rows - 1]; }

}  // namespace CT_TIER
}  // namespace ct
