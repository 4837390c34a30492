/* Batch normalisation of one instruction set.  Included by native.c once per set, after products.h.
 *
 * Columns are taken LANES at a time, so that their sums stay in registers; a sum runs over the rows in order, whatever
 * the vector length. */

INLINE void K(store)(float *to, K(Lane) v, long count) {
    if (count >= LANES)
        *(K(Lane) *)to = v;
    else
        for (long j = 0; j < count; j++) to[j] = v[j];
}

/* Pieces [P][rows][width], `per` of which belong to one replica, by their own mean and variance (denominator rows):
 * scaled = (x - mean) / sqrt(variance + epsilon), out = scaled * weight + bias. */
TARGET static int K(normalise_forward)(long pieces, long per, long rows, long width, double epsilon, const float *x,
                                       const float *weight, long weight_replica, const float *bias, long bias_replica,
                                       float *mean, float *variance, float *inverse, float *scaled, float *out) {
    const float share = 1.0f / (float)rows;
    for (long p = 0; p < pieces; p++) {
        const long start = p * rows * width;
        for (long j = 0; j < width; j += LANES) {
            const long count = width - j;
            K(Lane) sum = {0}, square = {0}, rate;
            for (long i = 0; i < rows; i++) sum += K(load)(x + start + i * width + j, count);
            const K(Lane) middle = sum * share;
            for (long i = 0; i < rows; i++) {
                const K(Lane) off = K(load)(x + start + i * width + j, count) - middle;
                square += off * off;
            }
            const K(Lane) spread = square * share;
            for (long k = 0; k < LANES; k++) rate[k] = 1.0f / __builtin_sqrtf(spread[k] + (float)epsilon);
            const K(Lane) gain = K(load)(weight + p / per * weight_replica + j, count);
            const K(Lane) shift = K(load)(bias + p / per * bias_replica + j, count);
            for (long i = 0; i < rows; i++) {
                const long at = start + i * width + j;
                const K(Lane) u = (K(load)(x + at, count) - middle) * rate;
                K(store)(scaled + at, u, count);
                K(store)(out + at, u * gain + shift, count);
            }
            K(store)(mean + p * width + j, middle, count);
            K(store)(variance + p * width + j, spread, count);
            K(store)(inverse + p * width + j, rate, count);
        }
    }
    return 0;
}

/* below = weight * inverse * (gradient - mean of gradient - scaled * mean of gradient * scaled); of_weight and of_bias
 * [P][width] are the sums over a piece's rows. */
TARGET static int K(normalise_backward)(long pieces, long per, long rows, long width, const float *gradient,
                                        const float *scaled, const float *weight, long weight_replica,
                                        const float *inverse, float *of_weight, float *of_bias, float *below) {
    const float share = 1.0f / (float)rows;
    for (long p = 0; p < pieces; p++) {
        const long start = p * rows * width;
        for (long j = 0; j < width; j += LANES) {
            const long count = width - j;
            K(Lane) plain = {0}, turned = {0};
            for (long i = 0; i < rows; i++) {
                const K(Lane) g = K(load)(gradient + start + i * width + j, count);
                plain += g;
                turned += g * K(load)(scaled + start + i * width + j, count);
            }
            const K(Lane) gain = K(load)(weight + p / per * weight_replica + j, count);
            const K(Lane) factor = gain * K(load)(inverse + p * width + j, count);
            const K(Lane) middle = plain * share, slope = turned * share;
            for (long i = 0; i < rows; i++) {
                const long at = start + i * width + j;
                const K(Lane) g = K(load)(gradient + at, count) - middle;
                K(store)(below + at, (g - K(load)(scaled + at, count) * slope) * factor, count);
            }
            K(store)(of_weight + p * width + j, turned, count);
            K(store)(of_bias + p * width + j, plain, count);
        }
    }
    return 0;
}
