// The exported functions of abi.h: the workers' handle, the tier that fits this processor, and the walk over a bound program.
#include "run/abi.h"
#include "run/kernel.h"
#include "run/processor.h"
#include "run/workers.h"

struct ct_workers {
  ct_workers(int threads, int32_t chosen, const ct::Kernel* kernels) : team(threads), tier(chosen), table(kernels) {}
  ct::Workers team;
  int32_t tier;
  const ct::Kernel* table;
};

namespace {

struct Description {
  const char* name;
  int64_t args_size;
};

#define CT_DESCRIBE(id, run, scratch, args) {#id, sizeof(args)},
const Description descriptions[CT_KERNEL_COUNT] = {CT_KERNELS(CT_DESCRIBE)};
#undef CT_DESCRIBE

bool known(int32_t kernel) { return kernel >= 0 && kernel < CT_KERNEL_COUNT; }

// A tier's kernels, where the library was built with them.
const ct::Kernel* table_of(int32_t tier) {
#if defined(CT_HAS_avx512)
  if (tier == CT_TIER_AVX512) return ct::avx512::table;
#endif
#if defined(CT_HAS_avx2)
  if (tier == CT_TIER_AVX2) return ct::avx2::table;
#endif
#if defined(CT_HAS_portable)
  if (tier == CT_TIER_PORTABLE) return ct::portable::table;
#endif
  return nullptr;
}

}  // namespace

int32_t ct_abi_version(void) { return CT_ABI_VERSION; }

int64_t ct_args_size(int32_t kernel) { return known(kernel) ? descriptions[kernel].args_size : -1; }

const char* ct_kernel_name(int32_t kernel) { return known(kernel) ? descriptions[kernel].name : ""; }

int32_t ct_best_tier(void) {
  int32_t best = ct::processor().avx512 ? CT_TIER_AVX512 : ct::processor().avx2 ? CT_TIER_AVX2 : CT_TIER_PORTABLE;
  while (best > CT_TIER_PORTABLE && !table_of(best)) --best;
  return best;
}

ct_workers* ct_workers_create(int32_t threads, int32_t tier) {
  const int32_t best = ct_best_tier();
  if (tier == CT_TIER_AUTO) tier = best;
  const ct::Kernel* table = table_of(tier);
  if (!table || tier > best) return nullptr;
  return new ct_workers(threads, tier, table);
}

int32_t ct_workers_has_bf16(const ct_workers* workers) {
  return workers->tier == CT_TIER_AVX512 && ct::processor().avx512_bf16;
}

void ct_workers_destroy(ct_workers* workers) { delete workers; }

int32_t ct_workers_count(const ct_workers* workers) { return workers->team.threads(); }

int32_t ct_workers_tier(const ct_workers* workers) { return workers->tier; }

int64_t ct_scratch_bytes(const ct_workers* workers, int32_t kernel, const void* args) {
  return known(kernel) ? workers->table[kernel].scratch(args, workers->team.threads()) : 0;
}

int32_t ct_run(ct_workers* workers, const ct_step* steps, int64_t count, void* scratch, int64_t* failed) {
  const bool held = workers->team.try_acquire();
  ct::Context context(held ? &workers->team : nullptr, scratch);
  int32_t status = CT_OK;
  for (int64_t i = 0; i < count && status == CT_OK; ++i) {
    status = known(steps[i].kernel) ? workers->table[steps[i].kernel].run(context, steps[i].args) : CT_BAD_KERNEL;
    if (status != CT_OK) *failed = i;
  }
  if (held) workers->team.release();
  return status;
}
