/* Losses over the live rows of the heads, and AdamW.  Included by native.c once per instruction set, after products.h. */

/* exp(x) for x in [-80, 0]: 2^n * p(r), with the polynomial of the Cephes library; within 2 units in the last place. */
INLINE Floats K(exponential)(Floats x) {
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number, held in the low bits */
    const Floats rounded = x * 1.44269504088896341f + shift;
    const Floats whole = rounded - shift;
    const Ints power = (Ints)rounded - (Ints)ALL(shift);
    Floats r = x - whole * 0.693359375f;
    r = r + whole * 2.12194440e-4f;
    Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return (Floats)((Ints)p + (power << 23));
}

/* log(x) for finite x >= 1, with the polynomial of the Cephes library; what is not finite gives NaN. */
INLINE Floats K(logarithm)(Floats x) {
    const Ints bits = (Ints)x;
    Ints power = (bits >> 23) - 126;
    Floats m = (Floats)((bits & 0x7fffff) | 0x3f000000); /* [0.5, 1) */
    const Ints small = m < 0.707106781186547524f;
    power += small; /* -1 where small */
    m = m + (Floats)((Ints)m & small) - 1.0f;
    const Floats square = m * m;
    Floats p = m * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    const Floats n = __builtin_convertvector(power, Floats);
    Floats result = p * m * square + n * -2.12194440e-4f - 0.5f * square;
    return result + m + n * 0.693359375f + (x - x);
}

INLINE Floats K(larger)(Floats a, Floats b) { return (Floats)(((Ints)a & (a > b)) | ((Ints)b & ~(a > b))); }

/* Arguments of exp below this add nothing to a sum that holds exp(0). */
#define DEEP -80.0f
INLINE Floats K(not_deep)(Floats x) { /* a NaN stays one */
    const Floats deep = ALL(DEEP);
    const Ints under = x < deep;
    return (Floats)(((Ints)deep & under) | ((Ints)x & ~under));
}

INLINE float K(sum_of)(Floats v) {
    float total = 0.0f;
    for (int i = 0; i < WIDTH; i++) total += v[i];
    return total;
}

/* Up to 16 numbers, 0 past the last. */
INLINE Floats K(some)(const float *data, long count) {
    if (count >= WIDTH) return *(const Floats *)data;
    Floats v = {0};
    for (long i = 0; i < count; i++) v[i] = data[i];
    return v;
}

/* HORD of one feature (see adaptbin/pretext/hord.py): logits [bins][row] become scale * entry * dL/dl; -> sum of
 * entry * L over rows.  entries: weight of each row, NULL: 1. */
TARGET static float K(hord)(float *logits, long row, long bins, long rows, const float *target, const float *entries,
                            float w_sord, float w_mse, float w_var, float scale, Floats *soft) {
    Floats losses = {0};
    for (long first = 0; first < rows; first += WIDTH) {
        const long count = rows - first < WIDTH ? rows - first : WIDTH;
        float *column = logits + first;
        const Floats y = K(some)(target + first, count);
        Floats top = *(Floats *)column;
        for (long t = 1; t < bins; t++) top = K(larger)(top, *(Floats *)(column + t * row));
        Floats total = {0}, normaliser = {0}, crossed = {0}, moment1 = {0}, moment2 = {0};
        for (long t = 0; t < bins; t++) {
            const Floats shifted = *(Floats *)(column + t * row) - top;
            const Floats distance = (float)t - y;
            const Floats square = distance * distance;
            const Floats q = K(exponential)(K(not_deep)(-square));
            const Floats e = K(exponential)(K(not_deep)(shifted));
            soft[t] = q;
            *(Floats *)(column + t * row) = e;
            normaliser += q;
            crossed += q * shifted;
            total += e;
            moment1 += distance * e;
            moment2 += square * e;
        }
        /* --- SORD = logsumexp(l) - sum_t q_t l_t;  mu - y = sum_t p_t d;  sigma^2 = sum_t p_t d^2 - (mu - y)^2 */
        const Floats inverse = 1.0f / total, share = 1.0f / normaliser;
        const Floats sord = K(logarithm)(total) - crossed * share;
        const Floats error = moment1 * inverse;
        const Floats variance = K(larger)(moment2 * inverse - error * error, (Floats){0});
        Floats loss = w_sord * sord + w_mse * (error * error) + w_var * variance;
        Floats each = ALL(scale);
        if (entries) {
            const Floats entry = K(some)(entries + first, count);
            loss *= entry;
            each *= entry;
        }
        /* --- dL/dl_t = p_t (c0 + c1 d + c2 d^2) - w_SORD q_t, the bracket expanded in d */
        const Floats slope = 2.0f * w_mse * error;
        const Floats scaled = inverse * each;
        const Floats c0 = (w_sord - slope * error + w_var * (error * error - variance)) * scaled;
        const Floats c1 = (slope - 2.0f * w_var * error) * scaled;
        const Floats c2 = w_var * scaled;
        const Floats pull = w_sord * share * each;
        for (long t = 0; t < bins; t++) {
            const Floats distance = (float)t - y;
            Floats *place = (Floats *)(column + t * row);
            *place = *place * (c0 + distance * (c1 + distance * c2)) - pull * soft[t];
        }
        /* --- end gradient */
        if (count < WIDTH)
            for (long i = count; i < WIDTH; i++) loss[i] = 0.0f;
        losses += loss;
    }
    return K(sum_of)(losses);
}

/* Cross entropy of one categorical column: logits [levels][row] become its gradient; -> sum of the loss over rows. */
TARGET static float K(cross_entropy)(float *logits, long row, long levels, long rows, const int64_t *codes, float scale) {
    Floats losses = {0};
    for (long first = 0; first < rows; first += WIDTH) {
        const long count = rows - first < WIDTH ? rows - first : WIDTH;
        float *column = logits + first;
        Ints code = {0};
        for (long i = 0; i < count; i++) code[i] = (int32_t)codes[first + i];
        Floats top = *(Floats *)column;
        for (long t = 1; t < levels; t++) top = K(larger)(top, *(Floats *)(column + t * row));
        Floats total = {0}, picked = {0};
        for (long t = 0; t < levels; t++) {
            const Floats shifted = *(Floats *)(column + t * row) - top;
            const Floats e = K(exponential)(K(not_deep)(shifted));
            picked += (Floats)((Ints)shifted & (code == (int32_t)t));
            *(Floats *)(column + t * row) = e;
            total += e;
        }
        Floats loss = K(logarithm)(total) - picked;
        const Floats scaled = scale / total, one = ALL(scale);
        for (long t = 0; t < levels; t++) {
            Floats *place = (Floats *)(column + t * row);
            *place = *place * scaled - (Floats)((Ints)one & (code == (int32_t)t));
        }
        if (count < WIDTH)
            for (long i = count; i < WIDTH; i++) loss[i] = 0.0f;
        losses += loss;
    }
    return K(sum_of)(losses);
}

/* Heads and losses forward and backward, replica by replica, over live rows only.
 *
 * hidden [R][rows][width]; codes [.][C][.] int64, bins and entries (their weights, NULL: 1) [.][D][.] float, rows next to
 * each other; losses [R][C + D] receives the mean loss per column, below [R][rows][width] the gradient of hidden. */
TARGET static int K(reconstruct)(const Heads *h, long rows, const float *hidden, const int64_t *codes, long codes_replica,
                                 long codes_column, const float *bins, long bins_replica, long bins_column,
                                 const float *entries, long entries_replica, long entries_column, float *losses,
                                 float *below) {
    const long columns = h->n_categorical + h->n_numerical;
    const long padded = (rows + PANEL - 1) / PANEL * PANEL;
    const size_t rooms[] = {K(room)(h->most_rows, rows, h->width), K(room)(h->most_rows, h->width, rows),
                            K(room)(rows, h->width, h->most_rows)};
    const size_t n_logits = (size_t)h->most_rows * padded;
    size_t n_room = 0;
    for (int i = 0; i < 3; i++) n_room = rooms[i] > n_room ? rooms[i] : n_room;
    Floats *soft = adaptbin_scratch((n_logits + n_room + (size_t)h->most_rows * WIDTH) * sizeof(float));
    if (!soft) return 1;
    float *room = (float *)(soft + h->most_rows), *logits = room + n_room;
    const float scale = 1.0f / (float)(columns * rows);
    for (long r = 0; r < h->replicas; r++) {
        const int32_t *index = h->rows + r * h->most_rows, *start = h->starts + r * (columns + 1);
        const long n_rows = start[columns];
        const float *unit = hidden + r * rows * h->width;
        const float *weight = h->weight + r * h->weight_replica;
        {
            const Left a = {weight, h->width, 1, index};
            const Right b = {unit, 1, h->width, NULL};
            /* All columns up to the padding are made, so that losses read whole vectors; what is past `rows` is 0 + bias. */
            const Output to = {.data = logits, .row = padded, .scale = 1.0f};
            K(product)(n_rows, rows, h->width, &a, &b, &to, room);
            const float *bias = h->bias + r * h->bias_replica;
            for (long i = 0; i < n_rows; i++) {
                float *line = logits + i * padded;
                const float b0 = bias[index[i]];
                for (long j = 0; j < rows; j++) line[j] += b0;
                for (long j = rows; j < padded; j++) line[j] = b0;
            }
        }
        for (long c = 0; c < columns; c++) {
            float *column = logits + start[c] * padded;
            const long slots = start[c + 1] - start[c], d = c - h->n_categorical;
            const float loss =
                d < 0 ? K(cross_entropy)(column, padded, slots, rows, codes + r * codes_replica + c * codes_column, scale)
                      : K(hord)(column, padded, slots, rows, bins + r * bins_replica + d * bins_column,
                                entries ? entries + r * entries_replica + d * entries_column : NULL, h->w_sord[r],
                                h->mse_weight[r * h->n_numerical + d], h->w_var[r], scale, soft);
            losses[r * columns + c] = loss / (float)rows;
        }
        float *bias_gradient = h->bias_gradient + r * h->bias_replica;
        for (long i = 0; i < n_rows; i++) {
            Floats sum = {0};
            for (long j = 0; j < rows; j += WIDTH) sum += K(some)(logits + i * padded + j, rows - j);
            bias_gradient[index[i]] = K(sum_of)(sum);
        }
        {
            const Left a = {logits, padded, 1, NULL};
            const Right b = {unit, h->width, 1, NULL};
            const Output to = {.data = h->weight_gradient + r * h->weight_replica, .row = h->width, .rows = index, .scale = 1.0f};
            K(product)(n_rows, h->width, rows, &a, &b, &to, room);
        }
        {
            const Left a = {logits, 1, padded, NULL};
            const Right b = {weight, h->width, 1, index};
            const Output to = {.data = below + r * rows * h->width, .row = h->width, .scale = 1.0f};
            K(product)(rows, h->width, n_rows, &a, &b, &to, room);
        }
    }
    return 0;
}

/* Clip each replica's gradient to max_norm, then one step of AdamW (Loshchilov & Hutter, arXiv 1711.05101).
 *
 * factor scales all step sizes; correction1 and correction2 are 1 - beta^step. */
TARGET static int K(adamw)(const Optimizer *o, double factor, double correction1, double correction2) {
    const float rest1 = (float)(1.0 - o->beta1), beta2 = (float)o->beta2, rest2 = (float)(1.0 - o->beta2);
    const float eps = (float)o->eps, unbias = (float)(1.0 / __builtin_sqrt(correction2));
    for (long r = 0; r < o->replicas; r++) {
        const long length = o->length[r];
        float *restrict values = o->values + r * o->stride;
        float *restrict first = o->first + r * o->stride;
        float *restrict second = o->second + r * o->stride;
        const float *restrict gradients = o->gradients + r * o->stride;
        float clip = 1.0f;
        if (o->max_norm > 0.0) {
            Floats sums[4] = {{0}};
            for (long i = 0; i < length; i += 4 * WIDTH)
                UNROLL for (int j = 0; j < 4; j++) {
                    const Floats g = *(const Floats *)(gradients + i + j * WIDTH);
                    sums[j] += g * g;
                }
            const float square = K(sum_of)((sums[0] + sums[1]) + (sums[2] + sums[3]));
            const double share = o->max_norm / (__builtin_sqrt((double)square) + 1e-6);
            if (!(share >= 1.0)) clip = (float)share; /* also where it is not a number */
        }
        const float shrink = (float)(1.0 - o->rate[r] * factor * o->decay[r]);
        const float size = (float)(o->rate[r] * factor / correction1);
        for (long i = 0; i < length; i++) {
            const float g = gradients[i] * clip;
            const float m = first[i] + rest1 * (g - first[i]);
            const float v = second[i] * beta2 + rest2 * (g * g);
            first[i] = m;
            second[i] = v;
            values[i] = values[i] * shrink - size * m / (__builtin_sqrtf(v) * unbias + eps);
        }
    }
    return 0;
}
