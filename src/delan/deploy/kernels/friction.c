/* What the motors add: friction, with the memory of stop operators, rotors, springs and cables. */
static inline void at_motors(const real *joints, real *motors)
{
    for (int i = 0; i < DOF; i++)
        motors[i] = joints[i];
#if PAIRS
    for (int i = 0; i < PAIRS; i++)
        motors[DOF + i] = joints[PAIR_FIRST[i]] + PAIR_RATIO[i] * joints[PAIR_SECOND[i]];
#endif
}
static inline void at_joints(const real *motors, real *joints)
{
    for (int i = 0; i < DOF; i++)
        joints[i] = motors[i];
#if PAIRS
    for (int i = 0; i < PAIRS; i++) {
        joints[PAIR_FIRST[i]] += motors[DOF + i];
        joints[PAIR_SECOND[i]] += PAIR_RATIO[i] * motors[DOF + i];
    }
#endif
}

/* Friction but for what grows with the load. */
static inline void unloaded_friction(const real *w, const STATE *memory, const real *qd, real *torque)
{
    real v[MOTORS], sum[MOTORS];
    at_motors(qd, v);
    for (int m = 0; m < MOTORS; m++) {
        sum[m] = 0;
#if STEPS
        const real step = tanh_of(v[m] * (w + W_STEEPNESS)[m]);
#endif
#if TERM_VISCOUS
        sum[m] += (w + W_VISCOUS)[m] * v[m];
#endif
#if TERM_COULOMB
        sum[m] += (w + W_COULOMB)[m] * step;
#endif
#if TERM_ASYMMETRIC
        sum[m] += step > 0 ? (w + W_FORWARD)[m] * step : (w + W_BACKWARD)[m] * step;
#endif
#if TERM_STRIBECK
        const real share = v[m] * (w + W_STRIBECK_SLOWNESS)[m];
        sum[m] += (w + W_STRIBECK)[m] * step * exp_of(-share * share);
#endif
#if TERM_OFFSET
        sum[m] += m < DOF ? (w + W_SHIFT)[m] : 0;
#endif
#if STOPS
        for (int r = 0; r < STOPS; r++)
            sum[m] += (w + W_STOPS)[r * MOTORS + m] * (memory ? memory->stretch[r][m] / RADIUS[r] : step);
#endif
    }
    (void)w, (void)memory;
    at_joints(sum, torque);
}

#if TERM_LOAD
static inline real load_share(const real *w, const real *qd, int i)
{
    const real share = (w + W_LOAD)[i];
    return (share > (real)0.9 ? (real)0.9 : (share < (real)-0.9 ? (real)-0.9 : share)) *
           tanh_of(qd[i] * (w + W_STEEPNESS)[i]);
}
#endif

/* Friction under the conservative torque `load`. */
static inline void friction_of(const real *w, const STATE *memory, const real *qd, const real *load, real *torque)
{
    unloaded_friction(w, memory, qd, torque);
#if TERM_LOAD
    for (int i = 0; i < DOF; i++)
        torque[i] += load_share(w, qd, i) * (load[i] < 0 ? -load[i] : load[i]);
#else
    (void)load;
#endif
}

/* What is left of a torque when friction has taken its part. */
static inline void conservative_of(const real *w, const STATE *memory, const real *qd, const real *tau, real *left)
{
    real friction[DOF];
    unloaded_friction(w, memory, qd, friction);
    for (int i = 0; i < DOF; i++) {
        left[i] = tau[i] - friction[i];
#if TERM_LOAD
        left[i] /= 1 + load_share(w, qd, i) * (left[i] > 0 ? 1 : (left[i] < 0 ? -1 : 0));
#endif
    }
}

#if ROTORS
/* The torque of the rotors, and their inertia. */
static inline void add_rotors(const real *w, const real *qdd, real *torque)
{
    real push[MOTORS], back[DOF];
    at_motors(qdd, push);
    for (int m = 0; m < MOTORS; m++)
        push[m] *= (w + W_ROTOR)[m];
    at_joints(push, back);
    for (int i = 0; i < DOF; i++)
        torque[i] += back[i];
}
static inline void add_rotor_inertia(const real *w, real inertia[DOF][DOF])
{
    for (int j = 0; j < DOF; j++) {
        real one[DOF] = {0}, column[DOF] = {0};
        one[j] = 1;
        add_rotors(w, one, column);
        for (int i = 0; i < DOF; i++)
            inertia[i][j] += column[i];
    }
}
#endif

#if SPRINGS
/* The torque against springs and cables, and the energy that they store. */
static inline real add_springs(const real *w, const real *q, real *torque)
{
    real position[MOTORS], sum[MOTORS], back[DOF], energy = 0;
    at_motors(q, position);
    for (int m = 0; m < MOTORS; m++) {
        sum[m] = 0;
#if TERM_SPRING
        sum[m] += (w + W_SPRING)[m] * position[m];
        energy += (w + W_SPRING)[m] * position[m] * position[m] / 2;
#endif
#if TERM_PERIODIC
        if (m < DOF && CABLE[m]) {
            const real c = COS(position[m]), s = SIN(position[m]), c2 = c * c - s * s, s2 = 2 * s * c;
            sum[m] += (w + W_COS_1)[m] * c + (w + W_SIN_1)[m] * s + (w + W_COS_2)[m] * c2 + (w + W_SIN_2)[m] * s2;
            energy += (w + W_COS_1)[m] * s - (w + W_SIN_1)[m] * c + ((w + W_COS_2)[m] * s2 - (w + W_SIN_2)[m] * c2) / 2;
        }
#endif
    }
    at_joints(sum, back);
    for (int i = 0; i < DOF; i++)
        torque[i] += back[i];
    return energy;
}
#endif
