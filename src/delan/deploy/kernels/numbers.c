/* Elementary functions. */
#if FAST_MATH
/* e^x by a power of two and a polynomial; relative error below 3e-7 for |x| <= 87, beyond which it is cut. */
static inline real exp_of(real x)
{
    union { float value; int32_t bits; } power;
    x = x < -87.0f ? -87.0f : (x > 87.0f ? 87.0f : x);
    float turns = x * 1.44269504f;
    int32_t whole = (int32_t)(turns + (turns < 0.0f ? -0.5f : 0.5f));
    float rest = (x - (float)whole * 0.693145752f) - (float)whole * 1.42860677e-6f;
    float sum = EXP_5;
    sum = sum * rest + EXP_4;
    sum = sum * rest + EXP_3;
    sum = sum * rest + EXP_2;
    sum = sum * rest + EXP_1;
    sum = sum * rest + EXP_0;
    power.bits = (whole + 127) * (1 << 23);
    return (1.0f + rest + rest * rest * sum) * power.value;
}
static inline real tanh_of(real x)
{
    return 2 / (1 + exp_of(-2 * x)) - 1;
}
#else
static inline real exp_of(real x)
{
    return EXP(x);
}
static inline real tanh_of(real x)
{
    return TANH(x);
}
#endif

static inline real sigmoid(real x)
{
    return 1 / (1 + exp_of(-x));
}
static inline real softplus(real x)
{
    return (x > 0 ? x : 0) + LOG1P(EXP(x > 0 ? -x : x));
}

/* Solve A x = b for a symmetric positive definite A, whose lower half becomes its factor. */
static inline void solve_positive(real a[DOF][DOF], real *x)
{
    for (int j = 0; j < DOF; j++) {
        for (int k = 0; k < j; k++)
            for (int i = j; i < DOF; i++)
                a[i][j] -= a[i][k] * a[j][k];
        const real scale = 1 / SQRT(a[j][j]);
        for (int i = j; i < DOF; i++)
            a[i][j] *= scale;
    }
    for (int i = 0; i < DOF; i++) {
        for (int k = 0; k < i; k++)
            x[i] -= a[i][k] * x[k];
        x[i] /= a[i][i];
    }
    for (int i = DOF - 1; i >= 0; i--) {
        for (int k = i + 1; k < DOF; k++)
            x[i] -= a[k][i] * x[k];
        x[i] /= a[i][i];
    }
}
