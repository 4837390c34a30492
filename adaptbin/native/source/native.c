/* Compiled kernels for stacked replicas on one CPU core; adaptbin.native loads them, and says what they are for.
 *
 * The kernels are compiled once per instruction set, and the best one this processor has is chosen when the library is
 * loaded.  All sets give the same bits: see products.h. */

#include "native.h"

static _Thread_local struct { void *data; size_t bytes; } scratch;

void *adaptbin_scratch(size_t bytes) {
    if (bytes > scratch.bytes) {
        free(scratch.data);
        const size_t rounded = (bytes + 4095) / 4096 * 4096;
        scratch.data = aligned_alloc(4096, rounded);
        scratch.bytes = scratch.data ? rounded : 0;
    }
    return scratch.data;
}

#define HEIGHTS_6(F) F(1) F(2) F(3) F(4) F(5) F(6)
#define HEIGHTS_12(F) HEIGHTS_6(F) F(7) F(8) F(9) F(10) F(11) F(12)

/* Tiles fill the registers: height x vectors of sums, one row of the right operand, one number of the left. */
#if defined(__x86_64__)
#define SET avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512")))
#define LANES 16
#define TILE_ROWS 12
#define TILE_VECTORS 2
#define TILE_HEIGHTS HEIGHTS_12
#include "products.h"
#include "losses.h"
#include "normalisation.h"
#include "gating.h"
#include "undefine.h"
#define SET avx2
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define TILE_ROWS 6
#define TILE_VECTORS 2
#define TILE_HEIGHTS HEIGHTS_6
#include "products.h"
#include "losses.h"
#include "normalisation.h"
#include "gating.h"
#include "undefine.h"
#elif defined(__aarch64__)
#define SET neon
#define TARGET
#define LANES 4
#define TILE_ROWS 6
#define TILE_VECTORS 4
#define TILE_HEIGHTS HEIGHTS_6
#include "products.h"
#include "losses.h"
#include "normalisation.h"
#include "gating.h"
#include "undefine.h"
#endif

typedef struct {
    const char *name;
    int (*linear_forward)(long, long, long, long, const float *, long, long, const float *, long, const float *, long,
                          double, int, const uint8_t *, long, long, float *);
    int (*linear_backward)(long, long, long, long, const float *, long, long, const float *, const float *, long, double,
                           float *, float *, long, int, float *);
    int (*reconstruct)(const Heads *, long, const float *, const int64_t *, long, long, const float *, long, long,
                       const float *, long, long, float *, float *);
    int (*adamw)(const Optimizer *, double, double, double);
    int (*normalise_forward)(long, long, long, long, double, const float *, const float *, long, const float *, long,
                             float *, float *, float *, float *, float *);
    int (*normalise_backward)(long, long, long, long, const float *, const float *, const float *, long, const float *,
                              float *, float *, float *);
    int (*gate_forward)(long, long, long, const float *, const uint8_t *, long, double, float *);
    int (*gate_backward)(long, long, long, const float *, const uint8_t *, long, double, const float *, float *);
} Kernels;

#define KERNELS(set) \
    {#set, linear_forward_##set, linear_backward_##set, reconstruct_##set, adamw_##set, normalise_forward_##set, \
     normalise_backward_##set, gate_forward_##set, gate_backward_##set}
static const Kernels all[] = {
#if defined(__x86_64__)
    KERNELS(avx512),
    KERNELS(avx2),
#elif defined(__aarch64__)
    KERNELS(neon),
#endif
    {NULL},
};
static const Kernels *chosen;

static int supported(const char *name) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!strcmp(name, "avx512"))
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    (void)name;
    return 1;
#endif
}

/* Use the set called `name`, or the best one if it is NULL; -> whether this processor has it (if not, nothing changes). */
int adaptbin_choose(const char *name) {
    for (const Kernels *set = all; set->name; set++)
        if ((!name || !strcmp(name, set->name)) && supported(set->name)) {
            chosen = set;
            return 1;
        }
    return 0;
}

/* Raised with every change of a signature or a structure, so that a library left by older sources is not called. */
int adaptbin_interface(void) { return 4; }

/* The name of the set in use. */
const char *adaptbin_chosen(void) { return chosen->name; }

int adaptbin_linear_forward(long replicas, long rows, long inputs, long outputs, const float *x, long x_replica,
                            long x_row, const float *weight, long weight_replica, const float *bias, long bias_replica,
                            double scale, int rectified, const uint8_t *kept, long kept_replica, long kept_row,
                            float *out) {
    return chosen->linear_forward(replicas, rows, inputs, outputs, x, x_replica, x_row, weight, weight_replica, bias,
                                  bias_replica, scale, rectified, kept, kept_replica, kept_row, out);
}

int adaptbin_linear_backward(long replicas, long rows, long inputs, long outputs, const float *x, long x_replica,
                             long x_row, const float *gradient, const float *weight, long weight_replica, double scale,
                             float *weight_gradient, float *bias_gradient, long bias_replica, int gated, float *below) {
    return chosen->linear_backward(replicas, rows, inputs, outputs, x, x_replica, x_row, gradient, weight, weight_replica,
                                   scale, weight_gradient, bias_gradient, bias_replica, gated, below);
}

int adaptbin_reconstruct(const Heads *heads, long rows, const float *hidden, const int64_t *codes, long codes_replica,
                         long codes_column, const float *bins, long bins_replica, long bins_column,
                         const float *entries, long entries_replica, long entries_column, float *losses, float *below) {
    return chosen->reconstruct(heads, rows, hidden, codes, codes_replica, codes_column, bins, bins_replica, bins_column,
                               entries, entries_replica, entries_column, losses, below);
}

int adaptbin_adamw(const Optimizer *optimizer, double factor, double correction1, double correction2) {
    return chosen->adamw(optimizer, factor, correction1, correction2);
}

int adaptbin_normalise_forward(long pieces, long per, long rows, long width, double epsilon, const float *x,
                               const float *weight, long weight_replica, const float *bias, long bias_replica,
                               float *mean, float *variance, float *inverse, float *scaled, float *out) {
    return chosen->normalise_forward(pieces, per, rows, width, epsilon, x, weight, weight_replica, bias, bias_replica,
                                     mean, variance, inverse, scaled, out);
}

int adaptbin_normalise_backward(long pieces, long per, long rows, long width, const float *gradient,
                                const float *scaled, const float *weight, long weight_replica, const float *inverse,
                                float *of_weight, float *of_bias, float *below) {
    return chosen->normalise_backward(pieces, per, rows, width, gradient, scaled, weight, weight_replica, inverse,
                                      of_weight, of_bias, below);
}

int adaptbin_gate_forward(long replicas, long rows, long units, const float *x, const uint8_t *kept, long kept_replica,
                          double scale, float *out) {
    return chosen->gate_forward(replicas, rows, units, x, kept, kept_replica, scale, out);
}

int adaptbin_gate_backward(long replicas, long rows, long units, const float *x, const uint8_t *kept, long kept_replica,
                           double scale, const float *gradient, float *below) {
    return chosen->gate_backward(replicas, rows, units, x, kept, kept_replica, scale, gradient, below);
}
