/* Reads rows of q, qd and qdd and writes all results of the model for each of them, in order. */
#include "{{ name }}.h"

#include <stdio.h>

typedef {{ real }} real;
#define DOF {{ upper }}_DOF

static void write_numbers(const real *values, int count)
{
    if (fwrite(values, sizeof(real), (size_t)count, stdout) != (size_t)count)
        putc('!', stderr);
}

int main(void)
{
    real row[3][DOF], result[DOF];
{% if remembers %}
    {{ name }}_state memory;
    int begun = 0;
{% endif %}
    while (fread(row, sizeof(real), 3 * DOF, stdin) == 3 * DOF) {
        {{ name }}_inverse_dynamics(0, row[0], row[1], row[2], result);
        write_numbers(result, DOF);
{% if remembers %}
        if (begun)
            {{ name }}_state_update(&memory, row[0]);
        else
            {{ name }}_state_init(&memory, row[0]);
        begun = 1;
        {{ name }}_inverse_dynamics(&memory, row[0], row[1], row[2], result);
        write_numbers(result, DOF);
{% endif %}
{% if mechanics %}
        real inertia[DOF][DOF];
        {{ name }}_mass_matrix(row[0], inertia);
        write_numbers(&inertia[0][0], DOF * DOF);
        {{ name }}_forward_dynamics(0, row[0], row[1], row[2], result);
        write_numbers(result, DOF);
{% endif %}
{% if knows_domain %}
        const real distance = {{ name }}_in_domain(row[0], row[1]);
        write_numbers(&distance, 1);
{% endif %}
    }
    return 0;
}
