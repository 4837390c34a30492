/* Matrix products of one instruction set.  Included by native.c once per set, with SET, TARGET and the tile defined.
 *
 * Every element adds its products up in the order of k, one fused multiply-add after the other, whatever the vector
 * length, the number of rows or the place of a row: so a replica's numbers depend neither on its pack nor on the
 * processor. */

#define K(name) JOIN(name, SET)
#define INLINE TARGET static inline __attribute__((always_inline))
#define PANEL (LANES * TILE_VECTORS) /* columns of a tile; a multiple of LINE */

typedef float K(Lane) __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));
typedef int32_t K(Mask) __attribute__((vector_size(LANES * sizeof(int32_t)), aligned(4)));
typedef uint8_t K(Bytes) __attribute__((vector_size(LANES), aligned(1)));

/* Ask for part k of a right operand's panel that starts at column `first`.  Its parts lie far apart, often a page each,
 * so the processor does not see by itself what comes next. */
INLINE void K(fetch)(const Right *b, long first, long k) {
    if (b->column == 1) {
        const float *part = b->data + (b->rows ? b->rows[k] : k) * b->row + first;
        UNROLL for (int j = 0; j < PANEL; j += LINE) __builtin_prefetch(part + j, 0, 2);
    } else { /* transposed in memory: PANEL lines of LINE parts each */
        const float *part = b->data + (first + k % LINE * (PANEL / LINE)) * b->column + k / LINE * LINE;
        UNROLL for (int j = 0; j < PANEL / LINE; j++) __builtin_prefetch(part + j * b->column, 0, 2);
    }
}

/* sums[i][j] = sum over k of a[i * row + k * step] * b[k * b_row + j], added to what is there if it is `more`, for
 * `height` rows and PANEL columns.  Meanwhile it asks for as many parts of `ahead` from part `next` on, of the panel that
 * starts at column `first`, unless `ahead` is NULL. */
INLINE void K(tile)(const int height, const float *a, long row, long step, const float *b, long b_row, long depth,
                    int more, const Right *ahead, long first, long next, float *sums) {
    K(Lane) sum[TILE_ROWS][TILE_VECTORS];
    UNROLL for (int i = 0; i < height; i++)
        UNROLL for (int j = 0; j < TILE_VECTORS; j++)
            sum[i][j] = more ? *(const K(Lane) *)(sums + i * PANEL + j * LANES) : (K(Lane)){0};
    /* Every third row has a pointer, and the others lie one or two rows behind it: with one for each there are more than
     * registers, and moving them about takes the place of products. */
    const float *left[(TILE_ROWS + 2) / 3];
    UNROLL for (int i = 0; i < height; i += 3) left[i / 3] = a + i * row;
    for (long start = 0; start < depth; start += FETCHED) {
        const long end = start + FETCHED < depth ? start + FETCHED : depth;
        if (ahead)
            for (long k = start; k < end; k++) K(fetch)(ahead, first, next + k);
        for (long k = start; k < end; k++) {
            K(Lane) right[TILE_VECTORS];
            UNROLL for (int j = 0; j < TILE_VECTORS; j++) right[j] = *(const K(Lane) *)(b + j * LANES);
            UNROLL for (int i = 0; i < height; i++) {
                const K(Lane) number = left[i / 3][i % 3 * row] - (K(Lane)){0}; /* x - 0 is x: a broadcast */
                UNROLL for (int j = 0; j < TILE_VECTORS; j++) sum[i][j] += number * right[j];
            }
            b += b_row;
            UNROLL for (int i = 0; i < height; i += 3) {
                left[i / 3] += step;
                KEEP(left[i / 3]);
            }
        }
    }
    UNROLL for (int i = 0; i < height; i++)
        UNROLL for (int j = 0; j < TILE_VECTORS; j++) *(K(Lane) *)(sums + i * PANEL + j * LANES) = sum[i][j];
}

TARGET static void K(tile_of)(long height, const float *a, long row, long step, const float *b, long b_row, long depth,
                              int more, const Right *ahead, long first, long next, float *sums) {
    switch (height) {
#define HEIGHT(n) \
    case n: K(tile)(n, a, row, step, b, b_row, depth, more, ahead, first, next, sums); break;
        TILE_HEIGHTS(HEIGHT)
#undef HEIGHT
    }
}

/* Pairs of rows (a, b) trade places of LANES x LANES blocks at a distance: what LOW takes and what HIGH takes. */
#if LANES == 16
#define SWAPS(F) F(8) F(4) F(2) F(1)
#define LOW_8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH_8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define LOW_4 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HIGH_4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LOW_2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH_2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW_1 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HIGH_1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#elif LANES == 8
#define SWAPS(F) F(4) F(2) F(1)
#define LOW_4 0, 1, 2, 3, 8, 9, 10, 11
#define HIGH_4 4, 5, 6, 7, 12, 13, 14, 15
#define LOW_2 0, 1, 8, 9, 4, 5, 12, 13
#define HIGH_2 2, 3, 10, 11, 6, 7, 14, 15
#define LOW_1 0, 8, 2, 10, 4, 12, 6, 14
#define HIGH_1 1, 9, 3, 11, 5, 13, 7, 15
#elif LANES == 4
#define SWAPS(F) F(2) F(1)
#define LOW_2 0, 1, 4, 5
#define HIGH_2 2, 3, 6, 7
#define LOW_1 0, 4, 2, 6
#define HIGH_1 1, 5, 3, 7
#endif

/* to[k * to_row + j] = from[j * from_row + k] for LANES x LANES elements. */
INLINE void K(transpose)(const float *from, long from_row, float *to, long to_row) {
    K(Lane) v[LANES];
    UNROLL for (int i = 0; i < LANES; i++) v[i] = *(const K(Lane) *)(from + i * from_row);
#define SWAP(distance) \
    UNROLL for (int i = 0; i < LANES; i++) \
        if (!(i & distance)) { \
            const K(Lane) a = v[i], b = v[i + distance]; \
            v[i] = SHUFFLE(K(Mask), a, b, LOW_##distance); \
            v[i + distance] = SHUFFLE(K(Mask), a, b, HIGH_##distance); \
        }
    SWAPS(SWAP)
#undef SWAP
    UNROLL for (int i = 0; i < LANES; i++) *(K(Lane) *)(to + i * to_row) = v[i];
}

/* Copy `depth` parts from part `start` on of one panel of a right operand into [depth][PANEL], with zeros past its last
 * column. */
TARGET static void K(pack)(const Right *b, long first, long columns, long start, long depth, float *panel) {
    if (b->column == 1) {
        for (long k = 0; k < depth; k++) {
            const float *row = b->data + (b->rows ? b->rows[start + k] : start + k) * b->row + first;
            if (columns == PANEL) { /* said apart, so that the compiler knows the length */
                UNROLL for (int j = 0; j < PANEL; j += LANES)
                    *(K(Lane) *)(panel + k * PANEL + j) = *(const K(Lane) *)(row + j);
                continue;
            }
            for (long j = 0; j < columns; j++) panel[k * PANEL + j] = row[j];
            for (long j = columns; j < PANEL; j++) panel[k * PANEL + j] = 0.0f;
        }
        return;
    }
    /* Transposed in memory: block by block in registers, and what is left one by one. */
    for (long j = 0; j < PANEL; j += LANES) {
        const float *from = b->data + (first + j) * b->column + start;
        long k = 0;
        if (j + LANES <= columns)
            for (; k + LANES <= depth; k += LANES) K(transpose)(from + k, b->column, panel + k * PANEL + j, PANEL);
        for (; k < depth; k++)
            for (long i = 0; i < LANES; i++)
                panel[k * PANEL + j + i] = j + i < columns ? from[i * b->column + k] : 0.0f;
    }
}

INLINE K(Lane) K(load)(const float *from, long count) {
    if (count >= LANES) return *(const K(Lane) *)from;
    K(Lane) v = {0};
    for (long j = 0; j < count; j++) v[j] = from[j];
    return v;
}

/* One row of a tile into the output.  Written so that a NaN stays one. */
INLINE void K(finish)(const Output *out, long row, long first, long columns, const float *sum) {
    const long place = out->rows ? out->rows[row] : row;
    float *to = out->data + place * out->row + first;
    for (long j = 0; j < columns; j += LANES) {
        const long count = columns - j;
        K(Lane) v = *(const K(Lane) *)(sum + j) * out->scale;
        if (out->bias_of_column) v += K(load)(out->bias_of_column + first + j, count);
        if (out->rectified) v = (K(Lane))((K(Mask))v & ~(v < 0.0f));
        if (out->kept) {
            const uint8_t *units = out->kept + row * out->kept_row + first + j;
            K(Bytes) kept = {0};
            if (count >= LANES)
                kept = *(const K(Bytes) *)units;
            else
                for (long i = 0; i < count; i++) kept[i] = units[i];
            v = (K(Lane))((K(Mask))v & (__builtin_convertvector(kept, K(Mask)) != 0));
        }
        if (out->gate) v = (K(Lane))((K(Mask))v & (K(load)(out->gate + row * out->gate_row + first + j, count) > 0.0f));
        if (count >= LANES)
            *(K(Lane) *)(to + j) = v;
        else
            for (long i = 0; i < count; i++) to[j + i] = v[i];
    }
}

/* Numbers of scratch memory that products of up to these sizes need: a panel, sums that wait, and a copy of the left
 * operand. */
TARGET static size_t K(room)(long rows, long columns, long depth) {
    const long copied = rows * depth < MOST_SPREAD ? rows * depth : MOST_SPREAD, lines = rows > depth ? rows : depth;
    const long panels = depth > CHUNK ? (columns + PANEL - 1) / PANEL : 1;
    const long tall = rows < BLOCK ? rows + TILE_ROWS : BLOCK;
    return (size_t)((CHUNK + panels * tall) * PANEL + (copied + LINE - 1) / LINE * LINE + lines * LINE);
}

/* A left operand whose lines are a multiple of CROWDED apart would share few places of the first cache, and its lines
 * drive each other out before the next panel needs them.  So they are copied to where they lie close. */
TARGET static Left K(spread)(const Left *a, long rows, long columns, long depth, float *copy) {
    const int lies_along = a->column == 1;
    const long stride = lies_along ? a->row : a->column;
    if (stride % CROWDED || columns <= PANEL || rows * depth > MOST_SPREAD || (a->rows && !lies_along)) return *a;
    const long lines = lies_along ? rows : depth, length = lies_along ? depth : rows, apart = length + LINE;
    for (long i = 0; i < lines; i++)
        memcpy(copy + i * apart, a->data + (a->rows ? a->rows[i] : i) * stride, (size_t)length * sizeof(float));
    return (Left){copy, lies_along ? apart : 1, lies_along ? 1 : apart, NULL};
}

/* `height` rows of a left operand from `top` on, their parts from `start` on: where they lie, a row and a part apart.
 * Rows of which not every one follows the one before it are copied to `gathered`. */
INLINE Left K(rows_of)(const Left *a, long top, long height, long start, long deep, float *gathered) {
    if (!a->rows) return (Left){a->data + top * a->row + start * a->column, a->row, a->column, NULL};
    const int32_t *place = a->rows + top;
    long run = 1;
    while (run < height && place[run] == place[0] + run) run++;
    if (run == height) return (Left){a->data + place[0] * a->row + start * a->column, a->row, a->column, NULL};
    for (long i = 0; i < height; i++)
        for (long k = 0; k < deep; k++) gathered[i * CHUNK + k] = a->data[place[i] * a->row + (start + k) * a->column];
    return (Left){gathered, CHUNK, 1, NULL};
}

/* [rows, depth] x [depth, columns]; `room` holds as many numbers as K(room) says.
 *
 * A block of rows and a chunk of the depth at a time, so that the left operand stays in the second cache while it meets
 * every panel of the right one, and the panel in the first.  Sums wait for the next chunk as they are: it is the same
 * chain of additions as without chunks. */
TARGET static void K(product)(long rows, long columns, long depth, const Left *left, const Right *b, const Output *out,
                              float *room) {
    /* Chunks alike, of whole lines. */
    const long least = depth > CHUNK ? (depth + CHUNK - 1) / CHUNK : 1;
    const long chunk = ((depth + least - 1) / least + LINE - 1) / LINE * LINE;
    const long chunks = depth > chunk ? (depth + chunk - 1) / chunk : 1;
    const long blocks = (rows + BLOCK - 1) / BLOCK, tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    const long block = blocks ? (tiles + blocks - 1) / blocks * TILE_ROWS : 0;
    const long panels = (columns + PANEL - 1) / PANEL, tall = block * PANEL;
    float *panel = room, *waiting = room + CHUNK * PANEL, gathered[TILE_ROWS * CHUNK];
    const Left a = K(spread)(left, rows, columns, depth, waiting + (chunks > 1 ? panels : 1) * tall);
    for (long base = 0; base < rows; base += block) {
        const long end = rows - base < block ? rows : base + block;
        for (long step = 0; step < chunks; step++) {
            const long start = step * chunk, deep = depth - start < chunk ? depth - start : chunk;
            for (long p = 0; p < panels; p++) {
                const long first = p * PANEL, wide = columns - first < PANEL ? columns - first : PANEL;
                /* A copy pays where it is read more than twice. */
                const int as_it_lies = wide == PANEL && b->column == 1 && !b->rows && end - base <= 2 * TILE_ROWS;
                const float *right = as_it_lies ? b->data + start * b->row + first : panel;
                const long right_row = as_it_lies ? b->row : PANEL;
                if (!as_it_lies) K(pack)(b, first, wide, start, deep, panel);
                const Right *ahead = first + 2 * PANEL <= columns ? b : NULL;
                for (long top = base; top < end; top += TILE_ROWS) {
                    const long height = end - top < TILE_ROWS ? end - top : TILE_ROWS;
                    const Left tile = K(rows_of)(&a, top, height, start, deep, gathered);
                    float *sums = waiting + (chunks > 1 ? p * tall + (top - base) * PANEL : 0);
                    K(tile_of)(height, tile.data, tile.row, tile.column, right, right_row, deep, step > 0,
                               top == base ? ahead : NULL, first + PANEL, start, sums);
                    if (step + 1 < chunks) continue;
                    if (wide == PANEL) /* said apart, so that the compiler knows the length */
                        for (long i = 0; i < height; i++) K(finish)(out, top + i, first, PANEL, sums + i * PANEL);
                    else
                        for (long i = 0; i < height; i++) K(finish)(out, top + i, first, wide, sums + i * PANEL);
                }
            }
        }
    }
}

/* to[j] = sum over rows of data[i * row + j]. */
TARGET static void K(column_sums)(const float *restrict data, long row, long rows, long columns, float *restrict to) {
    for (long j = 0; j < columns; j++) to[j] = data[j];
    for (long i = 1; i < rows; i++)
        for (long j = 0; j < columns; j++) to[j] += data[i * row + j];
}

/* ---------------------------------------------------------------------------------------------------- linear layers */

/* out [R][rows][outputs] = scale * x weight + bias, rectified and with dropped units zeroed in hidden layers. */
TARGET static int K(linear_forward)(long replicas, long rows, long inputs, long outputs, const float *x, long x_replica,
                                    long x_row, const float *weight, long weight_replica, const float *bias,
                                    long bias_replica, double scale, int rectified, const uint8_t *kept,
                                    long kept_replica, long kept_row, float *out) {
    float *room = adaptbin_scratch(K(room)(rows, outputs, inputs) * sizeof(float));
    if (!room) return 1;
    for (long r = 0; r < replicas; r++) {
        const Left a = {x + r * x_replica, x_row, 1, NULL};
        const Right b = {weight + r * weight_replica, outputs, 1, NULL};
        const Output to = {.data = out + r * rows * outputs,
                           .row = outputs,
                           .scale = (float)scale,
                           .bias_of_column = bias + r * bias_replica,
                           .rectified = rectified,
                           .kept = kept ? kept + r * kept_replica : NULL,
                           .kept_row = kept_row};
        K(product)(rows, outputs, inputs, &a, &b, &to, room);
    }
    return 0;
}

/* Gradients of weight and bias, and unless `below` is NULL of the input, there zeroed where the input is not above 0 if
 * it is `gated`. */
TARGET static int K(linear_backward)(long replicas, long rows, long inputs, long outputs, const float *x,
                                     long x_replica, long x_row, const float *gradient, const float *weight,
                                     long weight_replica, double scale, float *weight_gradient, float *bias_gradient,
                                     long bias_replica, int gated, float *below) {
    const size_t of_weight = K(room)(inputs, outputs, rows), of_input = K(room)(rows, inputs, outputs);
    float *room = adaptbin_scratch((of_weight > of_input ? of_weight : of_input) * sizeof(float));
    if (!room) return 1;
    for (long r = 0; r < replicas; r++) {
        const float *above = gradient + r * rows * outputs;
        const Left transposed = {x + r * x_replica, 1, x_row, NULL};
        const Right right = {above, outputs, 1, NULL};
        const Output to = {.data = weight_gradient + r * weight_replica, .row = outputs, .scale = (float)scale};
        K(product)(inputs, outputs, rows, &transposed, &right, &to, room);
        K(column_sums)(above, outputs, rows, outputs, bias_gradient + r * bias_replica);
        if (below) {
            const Left left = {above, outputs, 1, NULL};
            const Right turned = {weight + r * weight_replica, 1, outputs, NULL};
            const Output down = {.data = below + r * rows * inputs,
                                 .row = inputs,
                                 .scale = (float)scale,
                                 .gate = gated ? x + r * x_replica : NULL,
                                 .gate_row = x_row};
            K(product)(rows, inputs, outputs, &left, &turned, &down, room);
        }
    }
    return 0;
}
