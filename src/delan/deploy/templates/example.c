/* A controller that follows a slow sine at a fixed rate with the model's torque fed forward, on a robot that is not
 * there: put your own in place of the two functions. */
#define _POSIX_C_SOURCE 200112L
#include "{{ name }}.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef {{ real }} real;
#define DOF {{ upper }}_DOF
#define PERIOD_NS 1000000L /* 1 kHz */
#define STIFFNESS 20
#define DAMPING 2

static real held_q[DOF], held_qd[DOF], held_tau[DOF];
static void read_robot(real q[DOF], real qd[DOF])
{
    for (int i = 0; i < DOF; i++) {
        q[i] = held_q[i];
        qd[i] = held_qd[i];
    }
}
static void command_robot(const real tau[DOF])
{
    int sound = 1;
    for (int i = 0; i < DOF; i++)
        sound = sound && isfinite(tau[i]); /* check your robot's limits here too */
    for (int i = 0; i < DOF; i++)
        held_tau[i] = sound ? tau[i] : 0; /* not the torque before, which would stay on */
}

int main(void)
{
    real q[DOF], qd[DOF], q_des[DOF], qd_des[DOF], qdd_des[DOF], tau[DOF];
    struct timespec next;
    read_robot(q, qd);
{% if remembers %}
    {{ name }}_state memory;
    {{ name }}_state_init(&memory, q);
{% endif %}
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (int tick = 0; tick < 1000; tick++) {
        const real t = (real)(tick * 1e-3);
        read_robot(q, qd);
{% if remembers %}
        {{ name }}_state_update(&memory, q);
{% endif %}
        for (int i = 0; i < DOF; i++) {
            q_des[i] = (real)0.1 * (real)sin(t);
            qd_des[i] = (real)0.1 * (real)cos(t);
            qdd_des[i] = (real)-0.1 * (real)sin(t);
        }
{% if knows_domain %}
        if (!({{ name }}_in_domain(q, qd) <= 2)) /* far from training data, or NaN: no model */
            memset(tau, 0, sizeof tau);
        else
            {{ name }}_inverse_dynamics({{ "&memory" if remembers else "0" }}, q_des, qd_des, qdd_des, tau);
{% else %}
        {{ name }}_inverse_dynamics({{ "&memory" if remembers else "0" }}, q_des, qd_des, qdd_des, tau);
{% endif %}
        for (int i = 0; i < DOF; i++)
            tau[i] += STIFFNESS * (q_des[i] - q[i]) + DAMPING * (qd_des[i] - qd[i]);
        command_robot(tau);
        next.tv_nsec += PERIOD_NS;
        if (next.tv_nsec >= 1000000000L) {
            next.tv_nsec -= 1000000000L;
            next.tv_sec++;
        }
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, 0);
    }
    printf("torque of joint 0 after 1 s: %g\n", (double)held_tau[0]);
    return 0;
}
