// The exported functions of abi.h: the pool's handle, the tier that fits this processor, and the walk over a bound program.
#include <chrono>

#include "run/abi.h"
#include "run/kernel.h"
#include "run/pool.h"

struct ct_pool {
  ct_pool(int threads, int32_t chosen, const ct::Kernel* kernels) : pool(threads), tier(chosen), table(kernels) {}
  ct::Pool pool;
  int32_t tier;
  const ct::Kernel* table;
};

namespace {

struct Description {
  const char* name;
  int64_t args_size;
};

// In the order of ct_kernel.
const Description descriptions[CT_KERNEL_COUNT] = {
    {"MATMUL", sizeof(ct_matmul_args)},
    {"MATMUL_GRAD_W", sizeof(ct_matmul_grad_w_args)},
    {"CONV", sizeof(ct_conv_args)},
    {"CONV_GRAD_X", sizeof(ct_conv_grad_x_args)},
    {"CONV_GRAD_W", sizeof(ct_conv_grad_w_args)},
    {"DEPTHWISE", sizeof(ct_conv_args)},
    {"DEPTHWISE_GRAD_X", sizeof(ct_conv_grad_x_args)},
    {"DEPTHWISE_GRAD_W", sizeof(ct_conv_grad_w_args)},
    {"MAX_POOL", sizeof(ct_pool_args)},
    {"MAX_POOL_GRAD", sizeof(ct_pool_args)},
    {"AVERAGE_POOL", sizeof(ct_pool_args)},
    {"AVERAGE_POOL_GRAD", sizeof(ct_pool_args)},
    {"SOFTMAX", sizeof(ct_softmax_args)},
    {"SOFTMAX_GRAD", sizeof(ct_softmax_args)},
    {"LOG_SOFTMAX", sizeof(ct_softmax_args)},
    {"LOG_SOFTMAX_GRAD", sizeof(ct_softmax_args)},
    {"SOFTMAX_CROSS_ENTROPY", sizeof(ct_cross_entropy_args)},
    {"MEAN_SQUARED_ERROR", sizeof(ct_regression_loss_args)},
    {"MEAN_ABSOLUTE_ERROR", sizeof(ct_regression_loss_args)},
    {"CHAIN", sizeof(ct_chain_args)},
    {"REDUCE", sizeof(ct_reduce_args)},
    {"COPY", sizeof(ct_copy_args)},
    {"FILL", sizeof(ct_fill_args)},
    {"GATHER", sizeof(ct_gather_args)},
    {"SCATTER_ADD", sizeof(ct_scatter_add_args)},
    {"LAYER_NORM", sizeof(ct_norm_args)},
    {"LAYER_NORM_GRAD", sizeof(ct_norm_grad_args)},
    {"RMS_NORM", sizeof(ct_norm_args)},
    {"RMS_NORM_GRAD", sizeof(ct_norm_grad_args)},
    {"UPDATE", sizeof(ct_update_args)},
    {"GUARD_FINITE", sizeof(ct_guard_args)},
    {"CONV_POOL", sizeof(ct_conv_pool_args)},
    {"POOL_CONV_GRAD_W", sizeof(ct_pool_conv_grad_w_args)},
};

bool known(int32_t kernel) { return kernel >= 0 && kernel < CT_KERNEL_COUNT; }

const ct::Kernel* table_of(int32_t tier) {
#if defined(CT_X86)
  if (tier == CT_TIER_AVX512) return ct::avx512::table;
  if (tier == CT_TIER_AVX2) return ct::avx2::table;
#endif
  return tier == CT_TIER_PORTABLE ? ct::portable::table : nullptr;
}

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int32_t ct_abi_version(void) { return CT_ABI_VERSION; }

int64_t ct_args_size(int32_t kernel) { return known(kernel) ? descriptions[kernel].args_size : -1; }

const char* ct_kernel_name(int32_t kernel) { return known(kernel) ? descriptions[kernel].name : ""; }

int32_t ct_best_tier(void) {
#if defined(CT_X86)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
    return CT_TIER_AVX512;
  if (avx2) return CT_TIER_AVX2;
#endif
  return CT_TIER_PORTABLE;
}

ct_pool* ct_pool_create(int32_t threads, int32_t tier) {
  const int32_t best = ct_best_tier();
  if (tier == CT_TIER_AUTO) tier = best;
  const ct::Kernel* table = table_of(tier);
  if (!table || tier > best) return nullptr;
  return new ct_pool(threads, tier, table);
}

int32_t ct_pool_has_bf16(const ct_pool* pool) {
#if defined(CT_X86)
  return pool->tier == CT_TIER_AVX512 && __builtin_cpu_supports("avx512bf16");
#else
  (void)pool;
  return 0;
#endif
}

void ct_pool_destroy(ct_pool* pool) { delete pool; }

int32_t ct_pool_threads(const ct_pool* pool) { return pool->pool.threads(); }

int32_t ct_pool_tier(const ct_pool* pool) { return pool->tier; }

int64_t ct_scratch_bytes(const ct_pool* pool, int32_t kernel, const void* args) {
  return known(kernel) ? pool->table[kernel].scratch(args, pool->pool.threads()) : 0;
}

int32_t ct_run(ct_pool* pool, const ct_step* steps, int64_t count, void* scratch, const volatile int32_t* cancel,
               int64_t* times, int64_t* failed) {
  const bool held = pool->pool.try_acquire();
  ct::Context context(held ? &pool->pool : nullptr, scratch);
  int32_t status = CT_OK;
  int64_t before = times ? now() : 0;
  for (int64_t i = 0; i < count && status == CT_OK; ++i) {
    if (cancel && *cancel) {
      status = CT_CANCELLED;
    } else if (!known(steps[i].kernel)) {
      status = CT_BAD_KERNEL;
    } else {
      status = pool->table[steps[i].kernel].run(context, steps[i].args);
    }
    if (status != CT_OK && failed) *failed = i;
    if (times) {
      const int64_t after = now();
      times[i] += after - before;
      before = after;
    }
  }
  if (held) pool->pool.release();
  return status;
}
