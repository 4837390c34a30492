/* What the kernels of every instruction set share: descriptions of operands, and the scratch memory of a thread. */

#ifndef ADAPTBIN_NATIVE_H
#define ADAPTBIN_NATIVE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define UNROLL _Pragma("GCC unroll 16")

/* In numbers: a line of the caches; how far apart lines fall into few places of the first cache; the largest left operand
 * that is copied for that; how deep a panel may be to stay in the first cache beside a tile's rows; how many rows of
 * such a depth stay in the second; and how many parts of a panel are asked for at once. */
#define LINE 16
#define CROWDED 512
#define MOST_SPREAD (1 << 19)
#define CHUNK 192
#define BLOCK 240
#define FETCHED 16

/* The compiler must have x in a register here, and not know where it came from. */
#define KEEP(x) __asm__("" : "+r"(x))

/* Sixteen numbers at once on every processor, in one, two or four registers: sums always run in sixteen chains. */
typedef float Floats __attribute__((vector_size(64), aligned(4)));
typedef int32_t Ints __attribute__((vector_size(64), aligned(4)));
#define WIDTH 16
/* GCC before 12 knows only the one, Clang only the other. */
#ifdef __clang__
#define SHUFFLE(mask, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(mask, a, b, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})
#endif
#define ALL(x) ((x) - (Floats){0}) /* x in every place; x - 0 is x, so this costs one broadcast */

/* Element (i, k) of a left operand: data[(rows ? rows[i] : i) * row + k * column]. */
typedef struct {
    const float *data;
    long row, column;
    const int32_t *rows;
} Left;

/* Element (k, j) of a right operand: data[(rows ? rows[k] : k) * row + j * column], where row or column is 1. */
typedef struct {
    const float *data;
    long row, column;
    const int32_t *rows;
} Right;

/* Where a product goes: scale * product + bias, then max(0), then zeroed where a unit is dropped or its gate is shut. */
typedef struct {
    float *data;
    long row;
    const int32_t *rows;          /* row i goes to rows[i]; NULL: to i */
    float scale;
    const float *bias_of_column;  /* NULL: none */
    int rectified;
    const uint8_t *kept;          /* [.][columns] of 0/1; NULL: all kept */
    long kept_row;
    const float *gate;            /* zero where this is not above 0; NULL: open */
    long gate_row;
} Output;

/* Heads and loss of R replicas: what stays the same from step to step.  Rows of the heads are live rows only, listed
 * column by column: the levels of each categorical column, then the bins of each numerical one. */
typedef struct {
    long replicas, width, n_categorical, n_numerical, most_rows;
    float *weight, *weight_gradient;  /* [R][.][width] */
    float *bias, *bias_gradient;      /* [R][.] */
    long weight_replica, bias_replica;
    const int32_t *rows;              /* [R][most_rows]: place in the bank of each live row */
    const int32_t *starts;            /* [R][columns + 1]: first live row of each column */
    const float *w_sord, *w_var;      /* [R] */
    const float *mse_weight;          /* [R][D] */
} Heads;

/* R replicas' parameters and what AdamW needs to know of each. */
typedef struct {
    long replicas, stride;
    float *values, *gradients, *first, *second; /* [R][stride] */
    const int64_t *length;                      /* [R]: how many are in use; 0 leaves a replica as it is */
    const double *rate, *decay;                 /* [R] */
    double beta1, beta2, eps, max_norm;         /* max_norm 0: no clipping */
} Optimizer;

/* At least `bytes` of this thread's own memory, grown when needed and kept; NULL when there is none. */
void *adaptbin_scratch(size_t bytes);

#endif
