// How a kernel is called from Python: see translation.py.

#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

static const int MOST_GIVEN = 40;
typedef void (*Unit)(const Given *, Results *);

static void release(PyObject *capsule) {
    long long *uses = (long long *)PyCapsule_GetPointer(capsule, NULL);
    if (--*uses == 0) free(uses);
}

static int type_of(char letter) {
    return letter == 'd' ? NPY_DOUBLE : letter == 'f' ? NPY_FLOAT : letter == '?' ? NPY_BOOL
         : letter == 'Q' ? NPY_UINT64 : NPY_INT64;
}

static PyObject *wrap(const Result &result, PyObject *const *args, const Given *given, int n_given) {
    if (result.n_axes < 0) {
        if (result.type == '?') return PyBool_FromLong(result.number != 0.0);
        if (result.type == 'q') return PyLong_FromDouble(result.number);
        return PyFloat_FromDouble(result.number);
    }
    if (!result.own)
        for (int i = 0; i < n_given; i++) {
            PyArrayObject *array = (PyArrayObject *)args[i];
            bool is_same = given[i].p == result.p && PyArray_Check(array) &&
                           PyArray_NDIM(array) == result.n_axes;
            for (int a = 0; is_same && a < result.n_axes; a++)
                is_same = PyArray_DIM(array, a) == result.n[a];
            if (is_same) {
                Py_INCREF(array);
                return (PyObject *)array;
            }
        }
    npy_intp n[MOST_AXES];
    for (int a = 0; a < result.n_axes; a++) n[a] = result.n[a];
    PyObject *array = PyArray_SimpleNewFromData(result.n_axes, n, type_of(result.type), result.p);
    if (!array) return NULL;
    if (result.own) {
        PyArray_SetBaseObject((PyArrayObject *)array, PyCapsule_New(result.own, NULL, release));
        return array;
    }
    PyObject *copy = PyArray_NewCopy((PyArrayObject *)array, NPY_CORDER);  // of a part of an array
    Py_DECREF(array);
    return copy;
}

// Results as a tuple; None where the arguments are not of the types. A type is the letter of a
// dtype and the number of axes; "n0" is a number, "g0" a generator, "u0" the address of a unit.
static PyObject *run(PyObject *address, PyObject *of_arguments, PyObject *const *given_args,
                     Py_ssize_t n_given) {
    Unit unit = (Unit)PyLong_AsVoidPtr(address);
    const char *types = PyUnicode_AsUTF8(of_arguments);
    if (!unit || !types) return NULL;
    if (n_given > MOST_GIVEN) return PyErr_Format(PyExc_TypeError, "too many arguments");
    Given given[MOST_GIVEN];
    PyObject *held[MOST_GIVEN];
    PyArrayObject *copied[MOST_GIVEN];
    int n_held = 0, n_copied = 0;
    Results results;
    results.count = 0, results.error.type = NULL;
    bool fits = true, failed = false;
    for (int i = 0; fits && !failed && i < n_given; i++) {
        PyObject *x = given_args[i];
        char letter = types[2 * i];
        if (letter == 'n') {
            fits = !PyArray_Check(x);
            if (fits) given[i].number = PyFloat_AsDouble(x);
            given[i].p = NULL;
            failed = PyErr_Occurred() != NULL;
        } else if (letter == 'u') {
            fits = PyLong_Check(x);
            if (fits) given[i].p = PyLong_AsVoidPtr(x);
            failed = PyErr_Occurred() != NULL;
        } else if (letter == 'g') {
            fits = !PyArray_Check(x);
            PyObject *bits = fits ? PyObject_GetAttrString(x, "bit_generator") : NULL;
            PyObject *capsule = bits ? PyObject_GetAttrString(bits, "capsule") : NULL;
            given[i].p = capsule ? PyCapsule_GetPointer(capsule, "BitGenerator") : NULL;
            Py_XDECREF(bits);
            if (capsule) held[n_held++] = capsule;
            failed = fits && !given[i].p;
        } else {
            PyArrayObject *array = (PyArrayObject *)x;
            fits = PyArray_Check(x) && PyArray_NDIM(array) == types[2 * i + 1] - '0' &&
                   PyArray_TYPE(array) == type_of(letter);
            if (!fits) break;
            if (!PyArray_IS_C_CONTIGUOUS(array) || !PyArray_ISALIGNED(array)) {
                int flags = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
                if (PyArray_ISWRITEABLE(array)) flags |= NPY_ARRAY_WRITEBACKIFCOPY;
                array = (PyArrayObject *)PyArray_FromArray(array, NULL, flags);
                failed = !array;
                if (failed) break;
                copied[n_copied++] = array;
            }
            given[i].p = PyArray_DATA(array);
            for (int a = 0; a < PyArray_NDIM(array); a++) {
                given[i].n[a] = PyArray_DIM(array, a);
                given[i].s[a] = PyArray_STRIDE(array, a);
            }
        }
    }
    PyObject *found = NULL;
    if (fits && !failed) {
        unit(given, &results);
        if (!results.error.type) found = PyTuple_New(results.count);
        for (int k = 0; found && k < results.count; k++) {
            PyObject *each = wrap(results.each[k], given_args, given, (int)n_given);
            if (!each) Py_CLEAR(found);
            else PyTuple_SET_ITEM(found, k, each);
        }
    }
    for (int i = 0; i < n_held; i++) Py_DECREF(held[i]);
    for (int i = 0; i < n_copied; i++) {
        PyArray_ResolveWritebackIfCopy(copied[i]);
        Py_DECREF(copied[i]);
    }
    if (failed) return NULL;
    if (!fits) Py_RETURN_NONE;
    if (results.error.type) {
        bool is_algebra = strcmp(results.error.type, "LinAlgError") == 0;
        PyObject *module = PyImport_ImportModule(is_algebra ? "numpy.linalg" : "builtins");
        PyObject *type = module ? PyObject_GetAttrString(module, results.error.type) : NULL;
        if (type) PyErr_SetString(type, results.error.message);
        Py_XDECREF(type);
        Py_XDECREF(module);
        return NULL;
    }
    return found;
}

// call(address, types, arguments): the results, or None
static PyObject *call(PyObject *, PyObject *const *args, Py_ssize_t) {
    return run(args[0], args[1], &PyTuple_GET_ITEM(args[2], 0), PyTuple_GET_SIZE(args[2]));
}

// What bind(address, types, function) gives: the unit's result, or a tuple of several. The function
// takes arguments of other types.
static PyObject *call_bound(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    PyObject *found = run(PyTuple_GET_ITEM(self, 0), PyTuple_GET_ITEM(self, 1), args, n);
    if (found == Py_None) {
        Py_DECREF(found);
        return PyObject_Vectorcall(PyTuple_GET_ITEM(self, 2), args, n, NULL);
    }
    if (!found || PyTuple_GET_SIZE(found) != 1) return found;
    PyObject *only = PyTuple_GET_ITEM(found, 0);
    Py_INCREF(only);
    Py_DECREF(found);
    return only;
}

static PyMethodDef bound = {"bound", (PyCFunction)(void (*)(void))call_bound, METH_FASTCALL, NULL};

// What bind_draw(address, types, function) gives: the generator, which is the first argument, and
// an array of the shape of the second, which the unit is given last and fills.
static PyObject *call_draw(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    PyObject *types = PyTuple_GET_ITEM(self, 1), *given[MOST_GIVEN];
    PyArrayObject *first = (PyArrayObject *)args[1];
    Py_ssize_t length = PyUnicode_GET_LENGTH(types);
    if (n >= MOST_GIVEN || !PyArray_Check(first) || length < 2)
        return PyErr_Format(PyExc_TypeError, "not the arguments of a draw");
    int dtype = type_of(PyUnicode_READ_CHAR(types, length - 2));
    PyObject *out = PyArray_EMPTY(PyArray_NDIM(first), PyArray_DIMS(first), dtype, 0);
    if (!out) return NULL;
    for (int i = 0; i < n; i++) given[i] = args[i];
    given[n] = out;
    PyObject *found = call_bound(self, given, n + 1);
    Py_XDECREF(found);
    PyObject *both = found ? PyTuple_Pack(2, args[0], out) : NULL;
    Py_DECREF(out);
    return both;
}

static PyMethodDef draw = {"draw", (PyCFunction)(void (*)(void))call_draw, METH_FASTCALL, NULL};

static PyObject *bind(PyObject *, PyObject *args) { return PyCFunction_New(&bound, args); }
static PyObject *bind_draw(PyObject *, PyObject *args) { return PyCFunction_New(&draw, args); }

static PyMethodDef functions[] = {
    {"bind", bind, METH_VARARGS, NULL},
    {"bind_draw", bind_draw, METH_VARARGS, NULL},
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "calls", NULL, -1, functions};

PyMODINIT_FUNC PyInit_calls(void) {
    import_array();
    return PyModule_Create(&module);
}
