/* A compiled function of a model as a Python object: copies its arguments to where the function reads them, calls it,
 * and gives back a copy of what it wrote, or writes it to `out`. Not part of exported code. */
#define PY_SSIZE_T_CLEAN
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <Python.h>
#include <numpy/arrayobject.h>
#include <stddef.h>
#include <string.h>

#define MOST_INPUTS 4

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    void (*function)(void *const *);
    void *const *table;
    void *place[MOST_INPUTS];
    Py_ssize_t inputs, length;
    int single;
    PyObject *result, *other;
    void *written;
} Call;

static PyObject *word_out;

/* Whether an object is an array of `length` floating-point numbers one after the other; if so they are copied. */
static int copied(const Call *self, PyObject *object, void *place)
{
    PyArrayObject *array = (PyArrayObject *)object;
    if (!PyArray_CheckExact(object) || PyArray_NDIM(array) != 1 || PyArray_DIM(array, 0) != self->length ||
        !PyArray_ISCARRAY_RO(array))
        return 0;
    const int kind = PyArray_TYPE(array);
    if (kind == (self->single ? NPY_FLOAT : NPY_DOUBLE)) {
        memcpy(place, PyArray_DATA(array), (size_t)PyArray_NBYTES(array));
        return 1;
    }
    if (kind == NPY_DOUBLE) {
        const double *from = PyArray_DATA(array);
        for (Py_ssize_t i = 0; i < self->length; i++)
            ((float *)place)[i] = (float)from[i];
        return 1;
    }
    if (kind == NPY_FLOAT) {
        const float *from = PyArray_DATA(array);
        for (Py_ssize_t i = 0; i < self->length; i++)
            ((double *)place)[i] = (double)from[i];
        return 1;
    }
    return 0;
}

/* The result in an array of its own. */
static PyObject *fresh(const Call *self)
{
    npy_intp length = self->length;
    PyObject *made = PyArray_SimpleNew(1, &length, self->single ? NPY_FLOAT : NPY_DOUBLE);
    if (made)
        memcpy(PyArray_DATA((PyArrayObject *)made), self->written,
               (size_t)length * (self->single ? sizeof(float) : sizeof(double)));
    return made;
}

/* Whether `out` can take the result as it is; if so it is copied there. */
static int given(const Call *self, PyObject *out)
{
    PyArrayObject *array = (PyArrayObject *)out;
    if (!PyArray_CheckExact(out) || PyArray_NDIM(array) != 1 || PyArray_DIM(array, 0) != self->length ||
        !PyArray_ISCARRAY(array) || PyArray_TYPE(array) != (self->single ? NPY_FLOAT : NPY_DOUBLE))
        return 0;
    memcpy(PyArray_DATA(array), self->written, (size_t)PyArray_NBYTES(array));
    return 1;
}

static PyObject *call(PyObject *object, PyObject *const *arguments, size_t count, PyObject *names)
{
    Call *self = (Call *)object;
    const int into = names != NULL && PyTuple_GET_SIZE(names) == 1 && PyTuple_GET_ITEM(names, 0) == word_out;
    if (PyVectorcall_NARGS(count) != self->inputs || (names != NULL && !into))
        return PyObject_Vectorcall(self->other, arguments, count, names);
    for (Py_ssize_t i = 0; i < self->inputs; i++)
        if (!copied(self, arguments[i], self->place[i]))
            return PyObject_Vectorcall(self->other, arguments, count, names);
    self->function(self->table);
    if (!into)
        return fresh(self);
    if (!given(self, arguments[self->inputs]))
        return PyObject_Vectorcall(self->other, arguments, count, names);
    return Py_NewRef(arguments[self->inputs]);
}

static int init(PyObject *object, PyObject *arguments, PyObject *names)
{
    Call *self = (Call *)object;
    unsigned long long function, table, place[MOST_INPUTS] = {0};
    PyObject *result, *other;
    if (!PyArg_ParseTuple(arguments, "KKnnpOOK|KKK", &function, &table, &self->inputs, &self->length, &self->single,
                          &result, &other, &place[0], &place[1], &place[2], &place[3]))
        return -1;
    (void)names;
    if (self->inputs < 1 || self->inputs > MOST_INPUTS) {
        PyErr_SetString(PyExc_ValueError, "a call takes one to four inputs");
        return -1;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(result, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) != 0)
        return -1;
    self->written = view.buf;
    PyBuffer_Release(&view);
    self->function = (void (*)(void *const *))(size_t)function;
    self->table = (void *const *)(size_t)table;
    for (int i = 0; i < MOST_INPUTS; i++)
        self->place[i] = (void *)(size_t)place[i];
    Py_XSETREF(self->result, Py_NewRef(result));
    Py_XSETREF(self->other, Py_NewRef(other));
    self->vectorcall = call;
    return 0;
}

static int traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(((Call *)object)->result);
    Py_VISIT(((Call *)object)->other);
    return 0;
}

static int clear(PyObject *object)
{
    Py_CLEAR(((Call *)object)->result);
    Py_CLEAR(((Call *)object)->other);
    return 0;
}

static void dealloc(PyObject *object)
{
    PyObject_GC_UnTrack(object);
    clear(object);
    Py_TYPE(object)->tp_free(object);
}

static PyTypeObject type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "delan_call.Call",
    .tp_doc = "A compiled function with its arguments in place.",
    .tp_basicsize = sizeof(Call),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = PyType_GenericNew,
    .tp_init = init,
    .tp_dealloc = dealloc,
    .tp_traverse = traverse,
    .tp_clear = clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Call, vectorcall),
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "delan_call", .m_size = -1};

PyMODINIT_FUNC PyInit_delan_call(void)
{
    import_array();
    PyObject *made = PyModule_Create(&module);
    word_out = PyUnicode_InternFromString("out");
    if (!word_out)
        Py_CLEAR(made);
    if (made && PyModule_AddType(made, &type) < 0)
        Py_CLEAR(made);
    return made;
}
