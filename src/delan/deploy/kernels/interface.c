/* What the header promises. */
#if STOPS
void NAME(state_init)(STATE *state, const real q[DOF])
{
    at_motors(q, state->position);
    memset(state->stretch, 0, sizeof state->stretch);
}

void NAME(state_update)(STATE *state, const real q[DOF])
{
    real position[MOTORS];
    at_motors(q, position);
    for (int r = 0; r < STOPS; r++)
        for (int m = 0; m < MOTORS; m++) {
            const real stretched = state->stretch[r][m] + (position[m] - state->position[m]);
            state->stretch[r][m] = stretched > RADIUS[r] ? RADIUS[r] : (stretched < -RADIUS[r] ? -RADIUS[r] : stretched);
        }
    memcpy(state->position, position, sizeof position);
}
#endif

void NAME(inverse_dynamics)(WEIGHTS_ARGUMENT const STATE *memory, const real q[DOF], const real qd[DOF],
                            const real qdd[DOF], real tau[DOF])
{
    real torque[DOF];
    rigid_inverse_dynamics(W, q, qd, qdd, torque);
#if ACTUATOR
#if ROTORS
    add_rotors(W, qdd, torque);
#endif
#if SPRINGS
    add_springs(W, q, torque);
#endif
    real friction[DOF];
    friction_of(W, memory, qd, torque, friction);
    for (int i = 0; i < DOF; i++)
        torque[i] += friction[i];
#else
    (void)memory;
#endif
    memcpy(tau, torque, sizeof torque);
}

#if MECHANICS
void NAME(mass_matrix)(WEIGHTS_ARGUMENT const real q[DOF], real inertia[DOF][DOF])
{
    rigid_mass_matrix(W, q, inertia);
#if ROTORS
    add_rotor_inertia(W, inertia);
#endif
}

void NAME(forward_dynamics)(WEIGHTS_ARGUMENT const STATE *memory, const real q[DOF], const real qd[DOF],
                            const real tau[DOF], real qdd[DOF])
{
    real push[DOF];
#if ACTUATOR
    conservative_of(W, memory, qd, tau, push);
#else
    (void)memory;
    memcpy(push, tau, sizeof push);
#endif
#if SPRINGS
    real held[DOF] = {0};
    add_springs(W, q, held);
    for (int i = 0; i < DOF; i++)
        push[i] -= held[i];
#endif
#if FACTORED
    real result[DOF];
    rigid_forward_dynamics(W, q, qd, push, result);
    memcpy(qdd, result, sizeof result);
#else
    const real still[DOF] = {0};
    real inertia[DOF][DOF], bias[DOF];
    rigid_inverse_dynamics(W, q, qd, still, bias);
    NAME(mass_matrix)(WEIGHTS_PASSED q, inertia);
#if ADDED
    for (int i = 0; i < DOF; i++)
        inertia[i][i] += ADDED_INERTIA[i];
#endif
    for (int i = 0; i < DOF; i++)
        push[i] -= bias[i];
    solve_positive(inertia, push);
    memcpy(qdd, push, sizeof push);
#endif
}

void NAME(coriolis)(WEIGHTS_ARGUMENT const real q[DOF], const real qd[DOF], real torque[DOF])
{
    rigid_coriolis(W, q, qd, torque);
}

void NAME(gravity)(WEIGHTS_ARGUMENT const real q[DOF], real torque[DOF])
{
#if SPRINGS
    real held[DOF] = {0}, result[DOF]; /* torque may be q, which is read to the end */
    rigid_gravity(W, q, result);
    add_springs(W, q, held);
    for (int i = 0; i < DOF; i++)
        torque[i] = result[i] + held[i];
#else
    rigid_gravity(W, q, torque);
#endif
}

void NAME(friction)(WEIGHTS_ARGUMENT const STATE *memory, const real q[DOF], const real qd[DOF], const real qdd[DOF],
                    real torque[DOF])
{
#if ACTUATOR
    real load[DOF] = {0}, result[DOF]; /* torque may be qd, which is read to the end */
#if TERM_LOAD
    rigid_inverse_dynamics(W, q, qd, qdd, load);
#if ROTORS
    add_rotors(W, qdd, load);
#endif
#if SPRINGS
    add_springs(W, q, load);
#endif
#else
    (void)q, (void)qdd;
#endif
    friction_of(W, memory, qd, load, result);
    memcpy(torque, result, sizeof result);
#else
    (void)memory, (void)q, (void)qd, (void)qdd;
    WEIGHTS_UNUSED
    memset(torque, 0, DOF * sizeof(real));
#endif
}

#if TERM_LOAD
void NAME(unloaded_friction)(WEIGHTS_ARGUMENT const STATE *memory, const real qd[DOF], real torque[DOF])
{
    unloaded_friction(W, memory, qd, torque);
}
#endif

#if POTENTIAL
void NAME(energy)(WEIGHTS_ARGUMENT const real q[DOF], const real qd[DOF], real *kinetic, real *potential)
{
    real moving, resting;
    rigid_energy(W, q, qd, &moving, &resting);
#if ROTORS
    real momentum[DOF] = {0};
    add_rotors(W, qd, momentum);
    for (int i = 0; i < DOF; i++)
        moving += qd[i] * momentum[i] / 2;
#endif
#if SPRINGS
    real held[DOF] = {0};
    resting += add_springs(W, q, held);
#endif
    *kinetic = moving;
    *potential = resting;
}
#endif
#endif

#if DOMAIN_STATES
real NAME(in_domain)(WEIGHTS_ARGUMENT const real q[DOF], const real qd[DOF])
{
    real state[2 * DOF], least = -1;
    for (int i = 0; i < DOF; i++) {
        state[i] = q[i];
        state[DOF + i] = qd[i];
    }
    for (int k = 0; k < DOMAIN_STATES; k++) {
        real sum = 0;
        for (int i = 0; i < 2 * DOF; i++) {
            real away = state[i] - (W + W_STATES)[2 * DOF * k + i];
            if (i < DOF && ENDLESS_JOINT[i])
                away -= (real)6.283185307179586 * FLOOR((away + (real)3.141592653589793) / (real)6.283185307179586);
            away *= (W + W_NEARNESS)[i];
            sum += away * away;
        }
        if (least < 0 || sum < least)
            least = sum;
    }
    return SQRT(least);
}
#endif
