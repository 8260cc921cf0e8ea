/* A feed-forward network from (q, q', q'') to the torque; its scales are in the first and the last weights. */
static inline void rigid_inverse_dynamics(const real *w, const real *q, const real *qd, const real *qdd, real *tau)
{
    real x[FEATURES] = {0}, hidden[WIDTH], next[WIDTH], slope[WIDTH], out[OUTPUTS];
    for (int j = 0; j < BOUNDED; j++)
        x[j] = q[BOUNDS[j]];
    for (int j = 0; j < ENDLESS; j++) {
        x[BOUNDED + j] = COS(q[TURNS[j]]);
        x[BOUNDED + ENDLESS + j] = SIN(q[TURNS[j]]);
    }
    for (int j = 0; j < DOF; j++) {
        x[DOF + ENDLESS + j] = qd[j];
        x[2 * DOF + ENDLESS + j] = qdd[j];
    }
    affine(w + W_LAYER_0, w + W_BIAS_0, FEATURES, WIDTH, x, hidden);
    activate(hidden, slope);
    for (int layer = 1; layer < DEPTH; layer++) {
        affine(w + W_LAYERS + (layer - 1) * LAYER_SIZE, w + W_BIASES + (layer - 1) * WIDTH, WIDTH, WIDTH, hidden, next);
        activate(next, slope);
        memcpy(hidden, next, sizeof next);
    }
    affine(w + W_HEADS, w + W_HEADS_BIAS, WIDTH, OUTPUTS, hidden, out);
    memcpy(tau, out, DOF * sizeof(real));
}
