/* Gated units of one instruction set.  Included by native.c once per set, after products.h.
 *
 * x [R][rows][2 * units] holds values, and after them gates; kept [.][rows][units] of 0/1, NULL: all kept. */

/* out = value * max(gate, 0) * scale, 0 where a unit is not kept. */
TARGET static int K(gate_forward)(long replicas, long rows, long units, const float *x, const uint8_t *kept,
                                  long kept_replica, double scale, float *out) {
    const float factor = (float)scale;
    for (long r = 0; r < replicas; r++)
        for (long i = 0; i < rows; i++) {
            const float *restrict value = x + (r * rows + i) * 2 * units, *restrict gate = value + units;
            const uint8_t *restrict unit = kept ? kept + r * kept_replica + i * units : NULL;
            float *restrict to = out + (r * rows + i) * units;
            if (unit)
                for (long j = 0; j < units; j++)
                    to[j] = unit[j] ? value[j] * (gate[j] < 0.0f ? 0.0f : gate[j]) * factor : 0.0f;
            else
                for (long j = 0; j < units; j++) to[j] = value[j] * (gate[j] < 0.0f ? 0.0f : gate[j]);
        }
    return 0;
}

/* below [R][rows][2 * units]: the gradient of x, from that of out. */
TARGET static int K(gate_backward)(long replicas, long rows, long units, const float *x, const uint8_t *kept,
                                   long kept_replica, double scale, const float *gradient, float *below) {
    const float factor = (float)scale;
    for (long r = 0; r < replicas; r++)
        for (long i = 0; i < rows; i++) {
            const float *restrict value = x + (r * rows + i) * 2 * units, *restrict gate = value + units;
            const float *restrict above = gradient + (r * rows + i) * units;
            const uint8_t *restrict unit = kept ? kept + r * kept_replica + i * units : NULL;
            float *restrict of_value = below + (r * rows + i) * 2 * units, *restrict of_gate = of_value + units;
            for (long j = 0; j < units; j++) {
                const float g = unit ? (unit[j] ? above[j] * factor : 0.0f) : above[j];
                of_value[j] = g * (gate[j] < 0.0f ? 0.0f : gate[j]);
                of_gate[j] = gate[j] <= 0.0f ? 0.0f : g * value[j];
            }
        }
    return 0;
}
