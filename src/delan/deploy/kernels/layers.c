/* Layers of a network. A matrix is stored by its columns, one input after the other, each padded with zeros to a
 * multiple of PADDING outputs. To GCC and Clang a register full of numbers is a vector; other compilers see loops. */
#if defined(__GNUC__)
#if defined(__AVX__)
#define REGISTER 32
#else
#define REGISTER 16
#endif
#define LANE ((int)(REGISTER / sizeof(real)))
typedef real lanes __attribute__((vector_size(REGISTER)));
#else
#define LANE 1
typedef real lanes;
#endif
static const real NOTHING[PADDING] = {0};
static inline lanes load(const real *from)
{
    lanes values;
    memcpy(&values, from, sizeof values);
    return values;
}
static inline void store(real *to, lanes values)
{
    memcpy(to, &values, sizeof values);
}


#define PART 32 /* outputs that are computed at once, where there are as many */

/* Some outputs of y = W x + b, without b if that is NULL; the whole matrix has `outputs` rows. */
static inline void affine_part(int count, const real *weight, const real *bias, int inputs, int outputs, const real *x,
                               real *y)
{
    lanes sum[PART / LANE];
    UNROLL
    for (int k = 0; k < count / LANE; k++)
        sum[k] = load(bias ? bias + k * LANE : NOTHING);
    for (int i = 0; i < inputs; i++) {
        UNROLL
        for (int k = 0; k < count / LANE; k++)
            sum[k] += x[i] * load(weight + i * outputs + k * LANE);
    }
    UNROLL
    for (int k = 0; k < count / LANE; k++)
        store(y + k * LANE, sum[k]);
}
static inline void affine(const real *weight, const real *bias, int inputs, int outputs, const real *x, real *y)
{
    int first = 0;
    for (; first + PART <= outputs; first += PART)
        affine_part(PART, weight + first, bias ? bias + first : 0, inputs, outputs, x, y + first);
    for (; first < outputs; first += PADDING)
        affine_part(PADDING, weight + first, bias ? bias + first : 0, inputs, outputs, x, y + first);
}

/* The same with its derivative along a direction: y = W x + b, v = W u. */
static inline void affine_along_part(int count, const real *weight, const real *bias, int inputs, int outputs,
                                     const real *x, const real *u, real *y, real *v)
{
    lanes sum[PART / LANE], rate[PART / LANE];
    UNROLL
    for (int k = 0; k < count / LANE; k++) {
        sum[k] = load(bias + k * LANE);
        rate[k] = load(NOTHING);
    }
    for (int i = 0; i < inputs; i++) {
        UNROLL
        for (int k = 0; k < count / LANE; k++) {
            const lanes column = load(weight + i * outputs + k * LANE);
            sum[k] += x[i] * column;
            rate[k] += u[i] * column;
        }
    }
    UNROLL
    for (int k = 0; k < count / LANE; k++) {
        store(y + k * LANE, sum[k]);
        store(v + k * LANE, rate[k]);
    }
}
static inline void affine_along(const real *weight, const real *bias, int inputs, int outputs, const real *x,
                                const real *u, real *y, real *v)
{
    int first = 0;
    for (; first + PART <= outputs; first += PART)
        affine_along_part(PART, weight + first, bias + first, inputs, outputs, x, u, y + first, v + first);
    for (; first < outputs; first += PADDING)
        affine_along_part(PADDING, weight + first, bias + first, inputs, outputs, x, u, y + first, v + first);
}

#if FAST_MATH && defined(__GNUC__) && (ACTIVATION_SILU || ACTIVATION_TANH)
typedef int32_t whole_lanes __attribute__((vector_size(REGISTER)));

/* `exp_of` of a whole register. */
static inline lanes exp_lanes(lanes x)
{
    const whole_lanes low = (whole_lanes)(x < -87.0f), high = (whole_lanes)(x > 87.0f);
    const lanes least = x * 0 - 87.0f, most = x * 0 + 87.0f;
    x = (lanes)(((whole_lanes)least & low) | ((whole_lanes)most & high) | ((whole_lanes)x & ~(low | high)));
    const lanes turns = x * 1.44269504f;
    const whole_lanes sign = (whole_lanes)turns & INT32_MIN;
    const lanes half = (lanes)(((whole_lanes)(x * 0 + 0.5f) & INT32_MAX) | sign);
    const whole_lanes whole = __builtin_convertvector(turns + half, whole_lanes);
    const lanes back = __builtin_convertvector(whole, lanes);
    const lanes rest = (x - back * 0.693145752f) - back * 1.42860677e-6f;
    lanes sum = rest * EXP_5 + EXP_4;
    sum = sum * rest + EXP_3;
    sum = sum * rest + EXP_2;
    sum = sum * rest + EXP_1;
    sum = sum * rest + EXP_0;
    return (1.0f + rest + rest * rest * sum) * (lanes)((whole + 127) * (1 << 23));
}

/* The activation of every unit, and its slope. */
static inline void activate(real *x, real *slope)
{
    for (int first = 0; first < WIDTH; first += LANE) {
        const lanes v = load(x + first);
#if ACTIVATION_SILU
        const lanes s = 1 / (1 + exp_lanes(-v));
        store(x + first, v * s);
        store(slope + first, s * (1 + v * (1 - s)));
#else
        const lanes t = 2 / (1 + exp_lanes(-2 * v)) - 1;
        store(x + first, t);
        store(slope + first, 1 - t * t);
#endif
    }
}
#else
/* The activation of every unit, and its slope. */
static inline void activate(real *x, real *slope)
{
    for (int i = 0; i < WIDTH; i++) {
        const real v = x[i];
#if ACTIVATION_SILU
        const real s = sigmoid(v);
        x[i] = v * s;
        slope[i] = s * (1 + v * (1 - s));
#elif ACTIVATION_TANH
        const real t = tanh_of(v);
        x[i] = t;
        slope[i] = 1 - t * t;
#elif ACTIVATION_SOFTPLUS
        x[i] = softplus(v);
        slope[i] = sigmoid(v);
#elif ACTIVATION_RELU
        x[i] = v > 0 ? v : 0;
        slope[i] = v > 0 ? 1 : 0;
#elif ACTIVATION_SIN
        x[i] = SIN(v);
        slope[i] = COS(v);
#endif
    }
}
#endif
