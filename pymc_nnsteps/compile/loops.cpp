// How PyTensor's machine calls a loop over arrays of one shape, and views: see elementwise.py.

#include <Python.h>
#include <initializer_list>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

static const int MOST = 32;         // arrays, and axes
static const int MOST_GIVEN = 256;  // arguments of a function of Python

// Length of the loop, first entries and distances in bytes of each array.
typedef void (*Loop)(npy_intp, char **, const npy_intp *);

struct Spec {
    Loop loop;                          // NULL: NumPy's own loop, below
    PyUFuncGenericFunction of_numpy;
    void *data;
    int n_inputs, n_outputs, n_axes;
    int in_place[MOST];                 // the input that an output overwrites, or -1
    int dtype[MOST];                    // of outputs
    unsigned repeated[MOST];            // axes along which an input has length one
};

static void forget(PyObject *capsule) { delete (Spec *)PyCapsule_GetPointer(capsule, NULL); }

// Find NumPy's loop of a function of several arrays of one dtype.
static bool find_loop(PyObject *function, int dtype, Spec *spec) {
    PyUFuncObject *known = (PyUFuncObject *)function;
    for (int i = 0; i < known->ntypes; i++) {
        bool fits = true;
        for (int k = 0; k < known->nargs; k++)
            fits = fits && known->types[i * known->nargs + k] == dtype;
        if (!fits) continue;
        spec->loop = NULL;
        spec->of_numpy = known->functions[i];
        spec->data = known->data ? (void *)known->data[i] : NULL;
        return true;
    }
    PyErr_SetString(PyExc_TypeError, "NumPy has no loop for these arrays");
    return false;
}

// prepare(address or NumPy's function, number of axes, repeated axes, dtypes, what is overwritten)
static PyObject *prepare(PyObject *, PyObject *args) {
    PyObject *loop, *repeated, *dtypes, *in_place;
    Spec spec;
    if (!PyArg_ParseTuple(args, "OiO!O!O!", &loop, &spec.n_axes, &PyTuple_Type, &repeated,
                          &PyTuple_Type, &dtypes, &PyTuple_Type, &in_place))
        return NULL;
    spec.n_inputs = PyTuple_GET_SIZE(repeated);
    spec.n_outputs = PyTuple_GET_SIZE(dtypes);
    for (int i = 0; i < spec.n_inputs; i++)
        spec.repeated[i] = PyLong_AsUnsignedLong(PyTuple_GET_ITEM(repeated, i));
    for (int o = 0; o < spec.n_outputs; o++) {
        spec.dtype[o] = PyLong_AsLong(PyTuple_GET_ITEM(dtypes, o));
        spec.in_place[o] = PyLong_AsLong(PyTuple_GET_ITEM(in_place, o));
    }
    if (PyErr_Occurred()) return NULL;
    if (PyLong_Check(loop)) spec.loop = (Loop)PyLong_AsVoidPtr(loop);
    else if (!find_loop(loop, spec.dtype[0], &spec)) return NULL;
    return PyCapsule_New(new Spec(spec), NULL, forget);
}

// Call a loop along the last axis, from each place on the others; one array decides on their order.
static void apply(const Spec *spec, int n_axes, int n_arrays, int decides, npy_intp *lengths,
                  npy_intp (*steps)[MOST], char **first) {
    walk<MOST>(n_axes, n_arrays, decides, lengths, steps, first,
               [spec](npy_intp n, char **p, const npy_intp *s) {
        if (spec->loop) spec->loop(n, p, s);
        else spec->of_numpy(p, &n, s, spec->data);
    });
}

// What a node of a graph does. The machine looks for an exception in the first place.
struct Step {
    PyObject *error;
    bool (*run)(const Step *);
    PyObject *inputs, *outputs;         // tuples of lists of one array
    PyObject *what;                     // a specification, a function, or axes
    const Spec *spec;
    int n_axes, order[MOST];            // of a view: axes, or -1 for a new one
};

static PyObject *storage_of(PyObject *cells, int i) { return PyTuple_GET_ITEM(cells, i); }

static bool run_loop(const Step *step) {
    const Spec *spec = step->spec;
    int n_inputs = spec->n_inputs, n_axes = spec->n_axes, n_arrays = n_inputs + spec->n_outputs;
    PyArrayObject *arrays[MOST];
    npy_intp lengths[MOST], steps[MOST][MOST];
    char *first[MOST];
    for (int a = 0; a < n_axes; a++) lengths[a] = 1;
    bool in_columns = n_axes > 1, in_rows = n_axes <= 1;
    for (int i = 0; i < n_inputs; i++) {
        PyObject *given = PyList_GET_ITEM(storage_of(step->inputs, i), 0);
        if (!PyArray_Check(given) || PyArray_NDIM((PyArrayObject *)given) != n_axes) {
            PyErr_SetString(PyExc_TypeError, "an input is no array with as many axes as expected");
            return false;
        }
        arrays[i] = (PyArrayObject *)given;
        for (int a = 0; a < n_axes; a++) {
            bool is_repeated = spec->repeated[i] >> a & 1;
            steps[a][i] = is_repeated ? 0 : PyArray_STRIDE(arrays[i], a);
            if (!is_repeated) lengths[a] = PyArray_DIM(arrays[i], a);
        }
        if (PyArray_SIZE(arrays[i]) != 1) {
            in_rows = in_rows || PyArray_IS_C_CONTIGUOUS(arrays[i]);
            in_columns = in_columns && PyArray_IS_F_CONTIGUOUS(arrays[i]);
        }
        first[i] = (char *)PyArray_DATA(arrays[i]);
    }
    for (int i = 0; i < n_inputs; i++)
        for (int a = 0; a < n_axes; a++) {
            npy_intp found = PyArray_DIM(arrays[i], a);
            if (found == (spec->repeated[i] >> a & 1 ? 1 : lengths[a])) continue;
            PyErr_Format(PyExc_ValueError,
                         "Input dimension mismatch: arrays of lengths %zd and %zd on axis %d "
                         "(runtime broadcasting is not allowed)", found, lengths[a], a);
            return false;
        }
    npy_intp size = 1;
    for (int a = 0; a < n_axes; a++) size *= lengths[a];
    for (int o = 0; o < spec->n_outputs; o++) {
        PyObject *storage = storage_of(step->outputs, o), *old = PyList_GET_ITEM(storage, 0);
        PyArrayObject *&array = arrays[n_inputs + o];
        if (spec->in_place[o] >= 0) {
            array = arrays[spec->in_place[o]];
            Py_INCREF(array);
            PyList_SetItem(storage, 0, (PyObject *)array);
        } else {
            array = (PyArrayObject *)old;
            bool fits = PyArray_CheckExact(old) && PyArray_TYPE(array) == spec->dtype[o] &&
                        PyArray_NDIM(array) == n_axes && PyArray_ISWRITEABLE(array) &&
                        PyArray_ISALIGNED(array);
            for (int a = 0; fits && a < n_axes; a++) fits = PyArray_DIM(array, a) == lengths[a];
            if (!fits) {
                array = (PyArrayObject *)PyArray_EMPTY(n_axes, lengths, spec->dtype[o],
                                                       in_columns && !in_rows);
                if (!array) return false;
                PyList_SetItem(storage, 0, (PyObject *)array);
            }
        }
        first[n_inputs + o] = (char *)PyArray_DATA(array);
        for (int a = 0; a < n_axes; a++) steps[a][n_inputs + o] = PyArray_STRIDE(array, a);
    }
    if (size > 0) apply(spec, n_axes, n_arrays, n_arrays - 1, lengths, steps, first);
    return true;
}

// Sum an array along the axes that are marked as repeated ones of the sum.
static bool run_sum(const Step *step) {
    const Spec *spec = step->spec;
    PyArrayObject *x = (PyArrayObject *)PyList_GET_ITEM(storage_of(step->inputs, 0), 0);
    if (!PyArray_Check(x) || PyArray_NDIM(x) != spec->n_axes || PyArray_TYPE(x) != spec->dtype[0]) {
        PyErr_SetString(PyExc_TypeError, "an array is not of the type expected");
        return false;
    }
    npy_intp lengths[MOST], kept[MOST], steps[MOST][MOST];
    int n_kept = 0;
    for (int a = 0; a < spec->n_axes; a++) {
        lengths[a] = PyArray_DIM(x, a);
        if (!(spec->repeated[0] >> a & 1)) kept[n_kept++] = lengths[a];
    }
    PyArrayObject *sum = (PyArrayObject *)PyArray_ZEROS(n_kept, kept, spec->dtype[0], 0);
    if (!sum) return false;
    for (int a = 0, b = 0; a < spec->n_axes; a++) {
        steps[a][1] = PyArray_STRIDE(x, a);
        steps[a][0] = steps[a][2] = spec->repeated[0] >> a & 1 ? 0 : PyArray_STRIDE(sum, b++);
    }
    char *first[] = {(char *)PyArray_DATA(sum), (char *)PyArray_DATA(x), (char *)PyArray_DATA(sum)};
    if (PyArray_SIZE(x)) apply(spec, spec->n_axes, 3, 1, lengths, steps, first);
    return PyList_SetItem(storage_of(step->outputs, 0), 0, (PyObject *)sum) == 0;
}

static bool rearrange(const Step *step) {
    PyArrayObject *x = (PyArrayObject *)PyList_GET_ITEM(storage_of(step->inputs, 0), 0);
    npy_intp lengths[MOST], steps[MOST], size = 1;
    bool fits = PyArray_Check(x);
    for (int a = 0; fits && a < step->n_axes; a++) {
        int from = step->order[a];
        fits = from < PyArray_NDIM(x);
        lengths[a] = fits && from >= 0 ? PyArray_DIM(x, from) : 1;
        steps[a] = fits && from >= 0 ? PyArray_STRIDE(x, from) : 0;
        size *= lengths[a];
    }
    if (!fits || size != PyArray_SIZE(x)) {
        PyErr_SetString(PyExc_ValueError, "only axes of length one can be dropped from an array");
        return false;
    }
    PyArray_Descr *type = PyArray_DESCR(x);
    Py_INCREF(type);
    PyObject *view = PyArray_NewFromDescr(&PyArray_Type, type, step->n_axes, lengths, steps,
                                          PyArray_DATA(x), PyArray_FLAGS(x) & NPY_ARRAY_WRITEABLE,
                                          NULL);
    if (!view) return false;
    Py_INCREF(x);
    if (PyArray_SetBaseObject((PyArrayObject *)view, (PyObject *)x) < 0) {
        Py_DECREF(view);
        return false;
    }
    return PyList_SetItem(storage_of(step->outputs, 0), 0, view) == 0;
}

// Store what a function of Python gives for the inputs: one object, or a tuple.
static bool call_python(const Step *step) {
    PyObject *given[MOST_GIVEN];
    Py_ssize_t n_inputs = PyTuple_GET_SIZE(step->inputs), n = PyTuple_GET_SIZE(step->outputs);
    for (int i = 0; i < n_inputs; i++) given[i] = PyList_GET_ITEM(storage_of(step->inputs, i), 0);
    PyObject *found = PyObject_Vectorcall(step->what, given, n_inputs, NULL);
    if (!found) return false;
    if (n == 1) return PyList_SetItem(storage_of(step->outputs, 0), 0, found) == 0;
    bool fits = PyTuple_Check(found) && PyTuple_GET_SIZE(found) == n;
    if (!fits) PyErr_SetString(PyExc_ValueError, "a node has another number of results");
    for (int o = 0; fits && o < n; o++) {
        PyObject *each = PyTuple_GET_ITEM(found, o);
        Py_INCREF(each);
        PyList_SetItem(storage_of(step->outputs, o), 0, each);
    }
    Py_DECREF(found);
    return fits;
}

// What the machine calls: 0, or where the exception has gone.
static int take(Step *step) {
    if (step->run(step)) return 0;
    PyObject *error[3];
    PyErr_Fetch(&error[0], &error[1], &error[2]);
    for (int i = 0; i < 3; i++) {
        if (!error[i]) Py_INCREF(error[i] = Py_None);
        PyList_SetItem(step->error, i, error[i]);
    }
    return 1;
}

static void forget_step(PyObject *capsule) {
    Step *step = (Step *)PyCapsule_GetContext(capsule);
    for (PyObject *held : {step->error, step->inputs, step->outputs, step->what})
        Py_XDECREF(held);
    delete step;
}

static PyObject *capsule_of(const Step &given) {
    Step *step = new Step(given);
    step->error = Py_BuildValue("[OOO]", Py_None, Py_None, Py_None);
    for (PyObject *held : {step->inputs, step->outputs, step->what}) Py_XINCREF(held);
    PyObject *capsule = PyCapsule_New((void *)take, NULL, forget_step);
    PyCapsule_SetContext(capsule, step);
    return capsule;
}

// The step of a node, of what it does and tuples of the storage of inputs and outputs: loop(spec, ...),
// sum(spec, ...), call(function, ...), view(tuple of axes, ...)
static PyObject *step_of(PyObject *args, bool (*run)(const Step *)) {
    Step step = {NULL, run};
    if (!PyArg_ParseTuple(args, "OO!O!", &step.what, &PyTuple_Type, &step.inputs, &PyTuple_Type,
                          &step.outputs))
        return NULL;
    if (PyTuple_GET_SIZE(step.inputs) > MOST_GIVEN)
        return PyErr_Format(PyExc_ValueError, "too many inputs");
    if (PyTuple_Check(step.what)) {
        step.n_axes = PyTuple_GET_SIZE(step.what);
        if (step.n_axes > MOST) return PyErr_Format(PyExc_ValueError, "too many axes");
        for (int a = 0; a < step.n_axes; a++)
            step.order[a] = PyLong_AsLong(PyTuple_GET_ITEM(step.what, a));
    } else if (PyCapsule_CheckExact(step.what))
        step.spec = (const Spec *)PyCapsule_GetPointer(step.what, NULL);
    return PyErr_Occurred() ? NULL : capsule_of(step);
}

static PyObject *loop(PyObject *, PyObject *args) { return step_of(args, run_loop); }
static PyObject *sum(PyObject *, PyObject *args) { return step_of(args, run_sum); }
static PyObject *call(PyObject *, PyObject *args) { return step_of(args, call_python); }
static PyObject *view(PyObject *, PyObject *args) { return step_of(args, rearrange); }

// run(step), from Python
static PyObject *run(PyObject *, PyObject *capsule) {
    const Step *step = (const Step *)PyCapsule_GetContext(capsule);
    if (!step || !step->run(step)) return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"prepare", prepare, METH_VARARGS, NULL},
    {"loop", loop, METH_VARARGS, NULL},
    {"sum", sum, METH_VARARGS, NULL},
    {"call", call, METH_VARARGS, NULL},
    {"view", view, METH_VARARGS, NULL},
    {"run", run, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "loops", NULL, -1, functions};

PyMODINIT_FUNC PyInit_loops(void) {
    import_array();
    return PyModule_Create(&module);
}
