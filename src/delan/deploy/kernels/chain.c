/* A Lagrangian chain: frames T = T_parent [M t; 0 1] D(q) and links with pseudo-inertias K, by one sweep outwards and
 * one back. Matrices are kept by columns of four numbers, of which the last is zero: one vector register each. */
typedef struct { real column[4][4]; } frame;

#if defined(__GNUC__)
typedef real column __attribute__((vector_size(4 * sizeof(real))));
#endif
INLINE void add(real *to, real factor, const real *what)
{
#if defined(__GNUC__)
    column sum, more;
    memcpy(&sum, to, sizeof sum);
    memcpy(&more, what, sizeof more);
    sum += factor * more;
    memcpy(to, &sum, sizeof sum);
#else
    UNROLL
    for (int row = 0; row < 4; row++)
        to[row] += factor * what[row];
#endif
}
INLINE real along(const real *a, const real *b)
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

/* A frame of the parent, seen where the joint sits: T [M t; 0 1]. */
INLINE void placed(const real *place, const frame *parent, frame *here)
{
    UNROLL
    for (int j = 0; j < 4; j++) {
        UNROLL
        for (int row = 0; row < 4; row++)
            here->column[j][row] = j == 3 ? parent->column[3][row] : 0;
        UNROLL
        for (int m = 0; m < 3; m++)
            add(here->column[j], place[4 * m + j], parent->column[m]);
    }
}

/* A force on the joint, seen by its parent: F [M t; 0 1]'. */
INLINE void handed_down(const real *place, const frame *force, frame *to)
{
    UNROLL
    for (int m = 0; m < 3; m++)
        UNROLL
        for (int j = 0; j < 4; j++)
            add(to->column[m], place[4 * m + j], force->column[j]);
    add(to->column[3], 1, force->column[3]);
}

typedef struct {
    frame now, rate, push; /* T and its first and second derivatives */
    real c, s, slide;
} link;

/* F D(q), in place. */
INLINE void turned(real c, real s, frame *f)
{
    UNROLL
    for (int row = 0; row < 4; row++) {
        const real x = f->column[0][row], y = f->column[1][row];
        f->column[0][row] = c * x + s * y;
        f->column[1][row] = c * y - s * x;
    }
}
/* F D(q)', in place. */
INLINE void turned_back(real c, real s, frame *f)
{
    UNROLL
    for (int row = 0; row < 4; row++) {
        const real x = f->column[0][row], y = f->column[1][row];
        f->column[0][row] = c * x - s * y;
        f->column[1][row] = s * x + c * y;
    }
}

INLINE void moved_outwards(const real *place, int sliding, const link *parent, real q, real qd, real qdd,
                                  link *here)
{
    placed(place, &parent->now, &here->now);
    placed(place, &parent->rate, &here->rate);
    placed(place, &parent->push, &here->push);
    if (sliding) {
        here->slide = q;
        add(here->now.column[3], q, here->now.column[2]);
        add(here->rate.column[3], q, here->rate.column[2]);
        add(here->push.column[3], q, here->push.column[2]);
        add(here->push.column[3], 2 * qd, here->rate.column[2]);
        add(here->push.column[3], qdd, here->now.column[2]);
        add(here->rate.column[3], qd, here->now.column[2]);
        return;
    }
    here->c = COS(q);
    here->s = SIN(q);
    turned(here->c, here->s, &here->now);
    turned(here->c, here->s, &here->rate);
    turned(here->c, here->s, &here->push);
    UNROLL
    for (int row = 0; row < 4; row++) {
        const real x = here->now.column[0][row], y = here->now.column[1][row];
        here->push.column[0][row] += 2 * qd * here->rate.column[1][row] - qd * qd * x + qdd * y;
        here->push.column[1][row] -= 2 * qd * here->rate.column[0][row] + qd * qd * y + qdd * x;
    }
    UNROLL
    for (int row = 0; row < 4; row++) {
        here->rate.column[0][row] += qd * here->now.column[1][row];
        here->rate.column[1][row] -= qd * here->now.column[0][row];
    }
}

/* What a force on the link asks of its joint. */
INLINE real asked(int sliding, const frame *force, const link *here)
{
    if (sliding)
        return along(force->column[3], here->now.column[2]);
    return along(force->column[0], here->now.column[1]) - along(force->column[1], here->now.column[0]);
}

/* F D(q)', in place, for either kind of joint. */
INLINE void moved_back(int sliding, const link *here, frame *force)
{
    if (sliding)
        add(force->column[2], here->slide, force->column[3]);
    else
        turned_back(here->c, here->s, force);
}

static inline void base_of(const real *gravity, link *base)
{
    memset(base, 0, sizeof *base);
    UNROLL
    for (int row = 0; row < 3; row++) {
        base->now.column[row][row] = 1;
        base->push.column[3][row] = gravity[row];
    }
}

#if COUPLED
/* What the coordinates are to the joints of the tree, A x, and what these torques are to the coordinates, A' y. */
static inline void at_tree(const real *coordinates, real *joints)
{
    UNROLL
    for (int k = 0; k < TREE; k++) {
        joints[k] = 0;
        for (int i = 0; i < DOF; i++)
            joints[k] += COUPLING[k][i] * coordinates[i];
    }
}
static inline void at_coordinates(const real *joints, real *coordinates)
{
    UNROLL
    for (int i = 0; i < DOF; i++) {
        coordinates[i] = 0;
        for (int k = 0; k < TREE; k++)
            coordinates[i] += COUPLING[k][i] * joints[k];
    }
}
#endif

static inline void swept_outwards(const real *w, const real *gravity, const real *q, const real *qd, const real *qdd,
                                  link links[TREE + 1])
{
    base_of(gravity, &links[0]);
    UNROLL
    for (int k = 0; k < TREE; k++)
        moved_outwards(w + W_PLACE + 12 * k, SLIDES[k], &links[PARENT[k] + 1], q[k], qd[k], qdd[k], &links[k + 1]);
}

static inline void swept_tree(const real *w, const real *gravity, const real *q, const real *qd, const real *qdd, real *tau)
{
    link links[TREE + 1];
    frame force[TREE + 1];
    swept_outwards(w, gravity, q, qd, qdd, links);
    memset(force, 0, sizeof force);
    UNROLL
    for (int k = TREE - 1; k >= 0; k--) {
        frame *own = &force[k + 1];
        UNROLL
        for (int j = 0; j < 4; j++)
            UNROLL
            for (int m = 0; m < 4; m++)
                add(own->column[j], (w + W_INERTIA)[16 * k + 4 * m + j], links[k + 1].push.column[m]);
        tau[k] = asked(SLIDES[k], own, &links[k + 1]);
        if (PARENT[k] < 0)
            continue;
        moved_back(SLIDES[k], &links[k + 1], own);
        handed_down(w + W_PLACE + 12 * k, own, &force[PARENT[k] + 1]);
    }
}

static const real WEIGHTLESS[3] = {0};
static const real STILL[TREE] = {0};

static inline void swept(const real *w, const real *gravity, const real *q, const real *qd, const real *qdd, real *tau)
{
#if COUPLED
    real angle[TREE], speed[TREE], push[TREE], torque[TREE];
    at_tree(q, angle);
    at_tree(qd, speed);
    at_tree(qdd, push);
    swept_tree(w, gravity, angle, speed, push, torque);
    at_coordinates(torque, tau);
#else
    swept_tree(w, gravity, q, qd, qdd, tau);
#endif
}

static inline void rigid_inverse_dynamics(const real *w, const real *q, const real *qd, const real *qdd, real *tau)
{
    swept(w, w + W_GRAVITY, q, qd, qdd, tau);
    for (int i = 0; i < DOF; i++)
        tau[i] += (w + W_ARMATURE)[i] * qdd[i];
}

static inline void rigid_coriolis(const real *w, const real *q, const real *qd, real *torque)
{
    swept(w, WEIGHTLESS, q, qd, STILL, torque);
}

static inline void rigid_gravity(const real *w, const real *q, real *torque)
{
    swept(w, w + W_GRAVITY, q, STILL, STILL, torque);
}

/* B C B' with B = [M t; 0 1] D(q), added to another pseudo-inertia: what a link and all behind it are to its parent. */
static inline void carried(const real *place, int sliding, const link *here, real own[4][4], real to[4][4])
{
    real arm[4][4], half[4][4] = {{0}};
    UNROLL
    for (int m = 0; m < 4; m++)
        UNROLL
        for (int j = 0; j < 4; j++)
            arm[m][j] = m == 3 ? (real)(j == 3) : place[4 * m + j];
    UNROLL
    for (int m = 0; m < 4; m++) {
        if (sliding)
            arm[m][3] += here->slide * arm[m][2];
        else {
            const real x = arm[m][0], y = arm[m][1];
            arm[m][0] = here->c * x + here->s * y;
            arm[m][1] = here->c * y - here->s * x;
        }
    }
    UNROLL
    for (int m = 0; m < 4; m++)
        UNROLL
        for (int k = 0; k < 4; k++)
            UNROLL
            for (int j = 0; j < 4; j++)
                half[m][j] += arm[m][k] * own[k][j];
    UNROLL
    for (int m = 0; m < 4; m++)
        UNROLL
        for (int k = 0; k < 4; k++)
            UNROLL
            for (int j = 0; j < 4; j++)
                to[m][j] += half[m][k] * arm[j][k];
}

static inline void tree_mass_matrix(const real *w, const real *q, real inertia[TREE][TREE])
{
    link links[TREE + 1];
    real whole[TREE][4][4];
    swept_outwards(w, WEIGHTLESS, q, STILL, STILL, links);
    memcpy(whole, w + W_INERTIA, sizeof whole);
    memset(inertia, 0, TREE * TREE * sizeof(real));
    for (int k = TREE - 1; k >= 0; k--) {
        const link *here = &links[k + 1];
        frame way = {{{0}}}, force = {{{0}}}; /* T G, and T G C */
        UNROLL
        for (int row = 0; row < 3; row++) {
            if (SLIDES[k])
                way.column[3][row] = here->now.column[2][row];
            else {
                way.column[0][row] = here->now.column[1][row];
                way.column[1][row] = -here->now.column[0][row];
            }
        }
        UNROLL
        for (int j = 0; j < 4; j++)
            UNROLL
            for (int m = 0; m < 4; m++)
                add(force.column[j], whole[k][m][j], way.column[m]);
        for (int j = k; j >= 0; j = PARENT[j]) {
            inertia[j][k] = inertia[k][j] = asked(SLIDES[j], &force, &links[j + 1]);
            if (PARENT[j] < 0)
                break;
            frame down = {{{0}}};
            moved_back(SLIDES[j], &links[j + 1], &force);
            handed_down(w + W_PLACE + 12 * j, &force, &down);
            force = down;
        }
        if (PARENT[k] >= 0)
            carried(w + W_PLACE + 12 * k, SLIDES[k], here, whole[k], whole[PARENT[k]]);
    }
}

static inline void rigid_mass_matrix(const real *w, const real *q, real inertia[DOF][DOF])
{
#if COUPLED
    real angle[TREE], whole[TREE][TREE], half[TREE][DOF];
    at_tree(q, angle);
    tree_mass_matrix(w, angle, whole);
    for (int k = 0; k < TREE; k++)
        at_coordinates(whole[k], half[k]);
    for (int i = 0; i < DOF; i++)
        for (int j = 0; j < DOF; j++) {
            inertia[i][j] = 0;
            for (int k = 0; k < TREE; k++)
                inertia[i][j] += COUPLING[k][i] * half[k][j];
        }
#else
    tree_mass_matrix(w, q, inertia);
#endif
    for (int i = 0; i < DOF; i++)
        inertia[i][i] += (w + W_ARMATURE)[i];
}

static inline void rigid_energy(const real *w, const real *q, const real *qd, real *kinetic, real *potential)
{
    link links[TREE + 1];
#if COUPLED
    real angle[TREE], speed[TREE];
    at_tree(q, angle);
    at_tree(qd, speed);
    swept_outwards(w, WEIGHTLESS, angle, speed, STILL, links);
#else
    swept_outwards(w, WEIGHTLESS, q, qd, STILL, links);
#endif
    *kinetic = *potential = 0;
    for (int k = 0; k < TREE; k++) {
        const real *mass = w + W_INERTIA + 16 * k;
        UNROLL
        for (int m = 0; m < 4; m++) {
            UNROLL
            for (int j = 0; j < 4; j++)
                *kinetic += mass[4 * m + j] * along(links[k + 1].rate.column[m], links[k + 1].rate.column[j]) / 2;
            *potential += mass[4 * m + 3] * along(w + W_GRAVITY, links[k + 1].now.column[m]);
        }
    }
    for (int i = 0; i < DOF; i++)
        *kinetic += (w + W_ARMATURE)[i] * qd[i] * qd[i] / 2;
}
