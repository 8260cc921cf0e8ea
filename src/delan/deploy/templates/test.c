/* Does this compiler give the numbers that the model gave where it was learned? Exit code 0 if so. */
#include "{{ name }}.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef {{ real }} real;
#define DOF {{ upper }}_DOF
#define CASES {{ cases }}
#define TOLERANCE {{ tolerance }}

{% for table, values in tables.items() %}
static const real {{ table | upper }}[] = {
    {{ values }}
};
{% endfor %}

static int failures = 0;

static void check(const char *what, const real *got, const real *wanted, int count)
{
    double size = 0, worst = 0;
    for (int i = 0; i < count; i++) {
        const double away = fabs((double)got[i] - (double)wanted[i]);
        if (fabs((double)wanted[i]) > size)
            size = fabs((double)wanted[i]);
        if (!(away <= worst))
            worst = away;
    }
    if (!(worst <= TOLERANCE * size)) {
        printf("%s: off by %g of %g\n", what, worst, size);
        failures++;
    }
}

int main(void)
{
    if (strcmp({{ upper }}_CHECKSUM, "{{ checksum }}") != 0) {
        printf("this test belongs to other weights: {{ checksum }}, not %s\n", {{ upper }}_CHECKSUM);
        return 1;
    }
    for (int i = 0; i < CASES; i++) {
        const real *q = Q + i * DOF, *qd = QD + i * DOF, *push = PUSH + i * DOF;
        real result[DOF * DOF];
        (void)qd, (void)push;
        {{ name }}_inverse_dynamics(0, q, qd, push, result);
        check("inverse_dynamics", result, INVERSE_DYNAMICS + i * DOF, DOF);
{% if mechanics %}
        {{ name }}_forward_dynamics(0, q, qd, push, result);
        check("forward_dynamics", result, FORWARD_DYNAMICS + i * DOF, DOF);
        {{ name }}_mass_matrix(q, (real(*)[DOF])result);
        check("mass_matrix", result, MASS_MATRIX + i * DOF * DOF, DOF * DOF);
{% endif %}
    }
    printf("%s\n", failures ? "failed" : "all as it should be");
    return failures != 0;
}
