/* How long a call of exported code takes inside C:
 *
 *     harness inverse|forward TURNS CALLS SINGLES
 *
 * prints the least mean of CALLS calls over the turns, then the median and the 99th percentile of SINGLES calls that are
 * timed alone, without what the clock itself takes; all in microseconds. Built with REAL, and with FORWARD where the
 * model has forward dynamics. */
#define _POSIX_C_SOURCE 199309L
#include "arm.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MOST 100000

typedef void function_t(const arm_state *, const REAL *, const REAL *, const REAL *, REAL *);

static REAL q[ARM_DOF], qd[ARM_DOF], push[ARM_DOF], out[ARM_DOF];
static double times[MOST];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void call(function_t *function)
{
    if (function == NULL)
        return;
    function(NULL, q, qd, push, out);
    q[0] += (REAL)1e-9 * out[0]; /* each call waits for the one before */
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorted times of single calls. */
static void time_singles(function_t *function, int singles)
{
    for (int i = 0; i < singles; i++) {
        const double began = now();
        call(function);
        times[i] = now() - began;
    }
    qsort(times, (size_t)singles, sizeof times[0], ascending);
}

int main(int argc, char **argv)
{
    if (argc != 5 || atoi(argv[4]) > MOST)
        return 2;
    const int turns = atoi(argv[2]), calls = atoi(argv[3]), singles = atoi(argv[4]);
    function_t *function = arm_inverse_dynamics;
    double best = 1e30, clock = 0, p50 = 0, p99 = 0;
#ifdef FORWARD
    if (argv[1][0] == 'f')
        function = arm_forward_dynamics;
#endif
    for (int i = 0; i < ARM_DOF; i++) {
        q[i] = (REAL)0.1 * (REAL)i;
        qd[i] = (REAL)0.3;
        push[i] = 1;
    }
    for (int turn = 0; turn < turns; turn++) {
        const double began = now();
        for (int i = 0; i < calls; i++)
            call(function);
        const double mean = (now() - began) / calls;
        if (mean < best)
            best = mean;
    }
    if (singles > 0) {
        time_singles(NULL, singles);
        clock = times[singles / 2];
        time_singles(function, singles);
        p50 = times[singles / 2] - clock;
        p99 = times[(int)(0.99 * singles)] - clock;
    }
    printf("%.6f %.6f %.6f\n", best, p50, p99);
    return 0;
}
