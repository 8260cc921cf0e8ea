/* A Deep Lagrangian Network: inertia H = L L' and potential from one trunk, bound by the Euler-Lagrange equation.
 * One pass along q' gives L and its rate, one pass back gives the slopes of the energies by q. */
enum { ALL_PARTS, CORIOLIS_PART, GRAVITY_PART };

typedef struct {
    real factor[DOF][DOF];
    real bias[DOF];
    real potential;
} network_terms;

static inline void network_terms_of(const real *w, const real *q, const real *qd, int part, network_terms *terms)
{
    real x[FEATURES], u[FEATURES], by_q[FEATURES];
    real hidden[DEPTH][WIDTH], rate[DEPTH][WIDTH], slope[DEPTH][WIDTH];
    real out[OUTPUTS], out_rate[OUTPUTS], pull[OUTPUTS], back[WIDTH], down[WIDTH];

    for (int i = 0; i < FEATURES; i++)
        x[i] = u[i] = by_q[i] = 0;
    for (int j = 0; j < TURNING; j++) {
        const int joint = TURNS[j];
        const real scale = (w + W_SEEN)[joint], c = scale * COS(q[joint]), s = scale * SIN(q[joint]);
        x[j] = c;
        x[TURNING + j] = s;
        by_q[j] = -s;
        by_q[TURNING + j] = c;
        u[j] = -s * qd[joint];
        u[TURNING + j] = c * qd[joint];
    }
    for (int j = 0; j < SLIDING; j++) {
        const int joint = SLIDES[j];
        by_q[2 * TURNING + j] = (w + W_SEEN)[joint];
        x[2 * TURNING + j] = (w + W_SEEN)[joint] * (q[joint] - (w + W_CENTRE)[joint]);
        u[2 * TURNING + j] = (w + W_SEEN)[joint] * qd[joint];
    }
    affine_along(w + W_LAYER_0, w + W_BIAS_0, FEATURES, WIDTH, x, u, hidden[0], rate[0]);
    activate(hidden[0], slope[0]);
    for (int i = 0; i < WIDTH; i++)
        rate[0][i] *= slope[0][i];
    for (int layer = 1; layer < DEPTH; layer++) {
        affine_along(w + W_LAYERS + (layer - 1) * LAYER_SIZE, w + W_BIASES + (layer - 1) * WIDTH, WIDTH, WIDTH,
                     hidden[layer - 1], rate[layer - 1], hidden[layer], rate[layer]);
        activate(hidden[layer], slope[layer]);
        for (int i = 0; i < WIDTH; i++)
            rate[layer][i] *= slope[layer][i];
    }
    affine_along(w + W_HEADS, w + W_HEADS_BIAS, WIDTH, OUTPUTS, hidden[DEPTH - 1], rate[DEPTH - 1], out, out_rate);

    real factor_rate[DOF][DOF], diagonal_slope[DOF], p[DOF], p_rate[DOF];
    for (int i = 0, k = DOF; i < DOF; i++) {
        const real scale = (w + W_ROW)[i];
        for (int j = 0; j < DOF; j++)
            terms->factor[i][j] = factor_rate[i][j] = 0;
        for (int j = 0; j < i; j++, k++) {
            terms->factor[i][j] = scale * out[k];
            factor_rate[i][j] = scale * out_rate[k];
        }
#if DIAGONAL_SOFTPLUS
        diagonal_slope[i] = sigmoid(out[i]);
        terms->factor[i][i] = scale * (softplus(out[i]) + (w + W_OFFSET)[0]);
#else
        diagonal_slope[i] = out[i] > 0 ? 1 : 0;
        terms->factor[i][i] = scale * ((out[i] > 0 ? out[i] : 0) + (w + W_OFFSET)[0]);
#endif
        factor_rate[i][i] = scale * diagonal_slope[i] * out_rate[i];
    }
    for (int j = 0; j < DOF; j++) {
        p[j] = p_rate[j] = 0;
        for (int i = j; i < DOF; i++) {
            p[j] += terms->factor[i][j] * qd[i];
            p_rate[j] += factor_rate[i][j] * qd[i];
        }
    }
    /* What the energies -T and V pull at the outputs. */
    const real kinetic = part == GRAVITY_PART ? 0 : -1;
    for (int i = 0; i < OUTPUTS; i++)
        pull[i] = 0;
    for (int i = 0, k = DOF; i < DOF; i++) {
        const real scale = kinetic * (w + W_ROW)[i] * qd[i];
        for (int j = 0; j < i; j++, k++)
            pull[k] = scale * p[j];
        pull[i] = scale * p[i] * diagonal_slope[i];
    }
#if POTENTIAL
    pull[GRAVITY_OUTPUT] = part == CORIOLIS_PART ? 0 : (w + W_GRAVITY)[0];
    terms->potential = (w + W_GRAVITY)[0] * out[GRAVITY_OUTPUT];
#else
    terms->potential = 0;
#endif
    affine(w + W_HEADS_BACK, 0, OUTPUTS, WIDTH, pull, back);
    for (int layer = DEPTH - 1; layer > 0; layer--) {
        for (int i = 0; i < WIDTH; i++)
            down[i] = back[i] * slope[layer][i];
        affine(w + W_LAYERS_BACK + (layer - 1) * LAYER_SIZE, 0, WIDTH, WIDTH, down, back);
    }
    for (int i = 0; i < WIDTH; i++)
        down[i] = back[i] * slope[0][i];
    affine(w + W_LAYER_0_BACK, 0, WIDTH, FEATURES, down, x);
    for (int i = 0; i < FEATURES; i++)
        x[i] *= by_q[i];
    for (int j = 0; j < TURNING; j++)
        terms->bias[TURNS[j]] = x[j] + x[TURNING + j];
    for (int j = 0; j < SLIDING; j++)
        terms->bias[SLIDES[j]] = x[2 * TURNING + j];
#if !POTENTIAL
    if (part != CORIOLIS_PART)
        for (int i = 0; i < DOF; i++)
            terms->bias[i] += (w + W_GRAVITY)[i] * out[GRAVITY_OUTPUT + i];
#endif
    if (part != GRAVITY_PART)
        for (int i = 0; i < DOF; i++)
            for (int j = 0; j <= i; j++)
                terms->bias[i] += factor_rate[i][j] * p[j] + terms->factor[i][j] * p_rate[j];
}

static inline void rigid_inverse_dynamics(const real *w, const real *q, const real *qd, const real *qdd, real *tau)
{
    network_terms terms;
    network_terms_of(w, q, qd, ALL_PARTS, &terms);
    for (int i = 0; i < DOF; i++)
        tau[i] = terms.bias[i];
    for (int j = 0; j < DOF; j++) {
        real p = 0;
        for (int i = j; i < DOF; i++)
            p += terms.factor[i][j] * qdd[i];
        for (int i = j; i < DOF; i++)
            tau[i] += terms.factor[i][j] * p;
    }
}

#if FACTORED
static inline void rigid_forward_dynamics(const real *w, const real *q, const real *qd, const real *tau, real *qdd)
{
    network_terms terms;
    network_terms_of(w, q, qd, ALL_PARTS, &terms);
    for (int i = 0; i < DOF; i++) {
        real rest = tau[i] - terms.bias[i];
        for (int k = 0; k < i; k++)
            rest -= terms.factor[i][k] * qdd[k];
        qdd[i] = rest / terms.factor[i][i];
    }
    for (int i = DOF - 1; i >= 0; i--) {
        for (int k = i + 1; k < DOF; k++)
            qdd[i] -= terms.factor[k][i] * qdd[k];
        qdd[i] /= terms.factor[i][i];
    }
}
#endif

static inline void rigid_mass_matrix(const real *w, const real *q, real inertia[DOF][DOF])
{
    network_terms terms;
    const real rest[DOF] = {0};
    network_terms_of(w, q, rest, GRAVITY_PART, &terms);
    for (int i = 0; i < DOF; i++)
        for (int j = 0; j <= i; j++) {
            real sum = 0;
            for (int k = 0; k <= j; k++)
                sum += terms.factor[i][k] * terms.factor[j][k];
            inertia[i][j] = inertia[j][i] = sum;
        }
}

static inline void rigid_coriolis(const real *w, const real *q, const real *qd, real *torque)
{
    network_terms terms;
    network_terms_of(w, q, qd, CORIOLIS_PART, &terms);
    memcpy(torque, terms.bias, sizeof terms.bias);
}

static inline void rigid_gravity(const real *w, const real *q, real *torque)
{
    network_terms terms;
    const real rest[DOF] = {0};
    network_terms_of(w, q, rest, GRAVITY_PART, &terms);
    memcpy(torque, terms.bias, sizeof terms.bias);
}

#if POTENTIAL
static inline void rigid_energy(const real *w, const real *q, const real *qd, real *kinetic, real *potential)
{
    network_terms terms;
    network_terms_of(w, q, qd, ALL_PARTS, &terms);
    *kinetic = 0;
    for (int j = 0; j < DOF; j++) {
        real p = 0;
        for (int i = j; i < DOF; i++)
            p += terms.factor[i][j] * qd[i];
        *kinetic += p * p / 2;
    }
    *potential = terms.potential;
}
#endif
