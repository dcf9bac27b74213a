// Operations of graphs, after arrays.hpp: what graph_translation.py translates to.
//
// Entries of these arrays lie at any distances, in all axes. No operation writes to what it is given.

#define PyErr_SetString(kind, message)
#define FAILS throw Error{"ZeroDivisionError", "integer division by zero"};

namespace graphs {

static const Int NONE = std::numeric_limits<Int>::min();  // an end of a slice that is not given

// An array, or none of its axes, that loops go over with others: its first entry and its distances
// in bytes.
struct Operand { char *p; Int s[MOST_AXES]; };

template <class T, int N> Operand operand(const Array<T, N> &x) {
    Operand o = {(char *)x.p, {}};
    for (int a = 0; a < N; a++) o.s[a] = x.n[a] == 1 ? 0 : x.s[a] * Int(sizeof(T));
    return o;
}

// Loop over K arrays with lengths n, see `walk`.
template <int K, class F>
void over(int n_axes, const Int *lengths, Operand (&x)[K], int leading, F inner) {
    Int n[MOST_AXES], s[MOST_AXES][K];
    for (int a = 0; a < n_axes; a++) {
        if (lengths[a] == 0) return;
        n[a] = lengths[a];
        for (int k = 0; k < K; k++) s[a][k] = x[k].s[a];
    }
    char *p[K];
    for (int k = 0; k < K; k++) p[k] = x[k].p;
    walk<MOST_AXES>(n_axes, K, leading, n, s, p, inner);
}

// ---- Entry by entry

// What a function of numbers is applied to: `repeated` are the axes along which an array has
// length one and others need not.
template <int N> struct Lengths {
    Int n[N];
    bool in_columns = N > 1, in_rows = N <= 1;

    Lengths() { std::fill(n, n + N, Int(1)); }
    template <class T> void fit(const Array<T, N> &x, unsigned repeated) {
        for (int a = 0; a < N; a++)
            if (!(repeated >> a & 1)) n[a] = x.n[a];
        if (x.size() != 1) {
            in_rows = in_rows || x.is_whole();
            in_columns = in_columns && x.is_whole(true);
        }
    }
    template <class T> void check(const Array<T, N> &x, unsigned repeated) const {
        for (int a = 0; a < N; a++)
            if (x.n[a] != (repeated >> a & 1 ? 1 : n[a]))
                throw Error{"ValueError", "Input dimension mismatch"};
    }
    template <class T> Array<T, N> result() const {
        Shape<N> lengths;
        std::copy(n, n + N, lengths.n);
        Array<T, N> y = empty(lengths, Type<T>{});
        Int step = 1;
        if (in_columns && !in_rows)
            for (int a = 0; a < N; a++) y.s[a] = step, step *= n[a];
        return y;
    }
};

template <class T, class U, int N> void copy_into(const Array<T, N> &to, const Array<U, N> &from) {
    Operand x[] = {operand(from), operand(to)};
    over(N, to.n, x, 1, [](Int n, char **p, const Int *s) {
        if (s[0] == sizeof(U) && s[1] == sizeof(T)) std::copy((U *)p[0], (U *)p[0] + n, (T *)p[1]);
        else for (Int i = 0; i < n; i++) *(T *)(p[1] + i * s[1]) = T(*(U *)(p[0] + i * s[0]));
    });
}
template <class T, class U, int N> void add_into(const Array<T, N> &to, const Array<U, N> &from) {
    Operand x[] = {operand(from), operand(to)};
    over(N, to.n, x, 1, [](Int n, char **p, const Int *s) {
        for (Int i = 0; i < n; i++) *(T *)(p[1] + i * s[1]) += T(*(U *)(p[0] + i * s[0]));
    });
}
template <class T, class U, int N> Array<T, N> as_type(const Array<U, N> &x) {
    Array<T, N> y = empty(shape_of(x), Type<T>{});
    copy_into(y, x);
    return y;
}
template <class T, int N> Array<T, N> copied(const Array<T, N> &x) { return as_type<T>(x); }
template <class T, int N> Array<T, N> whole(const Array<T, N> &x) {
    return x.is_whole() ? x : copied(x);
}

// ---- Sums, and what else makes one number of several

struct Sum { template <class T> T operator()(T a, T b) const { return a + b; } };
struct Product { template <class T> T operator()(T a, T b) const { return a * b; } };
struct Largest { template <class T> T operator()(T a, T b) const { return a != a || a > b ? a : b; } };
struct Smallest { template <class T> T operator()(T a, T b) const { return a != a || a < b ? a : b; } };
struct All { template <class T> T operator()(T a, T b) const { return a && b; } };
struct Any { template <class T> T operator()(T a, T b) const { return a || b; } };

template <class R, class T, class F> R of_row(const char *p, Int n, Int s, R total, F f) {
    const int together = 8;
    R part[together];
    Int i = 0;
    if (n >= 2 * together && s == sizeof(T)) {
        const T *x = (const T *)p;
        for (int k = 0; k < together; k++) part[k] = R(x[k]);
        for (i = together; i + together <= n; i += together)
            for (int k = 0; k < together; k++) part[k] = f(part[k], R(x[i + k]));
        for (int k = 0; k < together; k++) total = f(total, part[k]);
    }
    for (; i < n; i++) total = f(total, R(*(const T *)(p + i * s)));
    return total;
}

// M axes are left of N; `taken` are the others.
template <class R, int M, class F, class T, int N>
Array<R, M> reduced(const Array<T, N> &x, unsigned taken, R first, F f) {
    Shape<M> left;
    int to = 0;
    for (int a = 0; a < N; a++)
        if (!(taken >> a & 1)) left.n[to++] = x.n[a];
    Array<R, M> y = empty(left, Type<R>{});
    std::fill(y.p, y.p + y.size(), first);
    Operand each[] = {operand(x), {(char *)y.p, {}}};
    to = 0;
    for (int a = 0; a < N; a++)
        if (!(taken >> a & 1)) each[1].s[a] = y.s[to++] * Int(sizeof(R));
    over(N, x.n, each, 0, [=](Int n, char **p, const Int *s) {
        R *into = (R *)p[1];
        if (s[1] == 0) *into = of_row<R, T>(p[0], n, s[0], *into, f);
        else if (s[1] == sizeof(R) && s[0] == sizeof(T))
            for (Int i = 0; i < n; i++) into[i] = f(into[i], R(((const T *)p[0])[i]));
        else
            for (Int i = 0; i < n; i++) {
                R &entry = *(R *)(p[1] + i * s[1]);
                entry = f(entry, R(*(const T *)(p[0] + i * s[0])));
            }
    });
    return y;
}

// ---- Shapes and parts

// Axes in another order; -1 is a new one, and what is not named has length one.
template <int M, class T, int N> Array<T, M> rearranged(const Array<T, N> &x, const Shape<M> &order) {
    Array<T, M> y;
    y.p = x.p;
    Int size = 1;
    for (int a = 0; a < M; a++) {
        Int from = order.n[a];
        y.n[a] = from < 0 ? 1 : x.n[from];
        y.s[a] = from < 0 ? 0 : x.s[from];
        size *= y.n[a];
    }
    if (size != x.size()) throw Error{"ValueError", "only axes of length one can be dropped from an array"};
    y.share(x.own);
    return y;
}

template <int M, class T, int N> Array<T, M> reshaped(const Array<T, N> &given, Shape<M> n) {
    Array<T, N> x = whole(given);
    Int known = 1, size = x.size();
    for (int a = 0; a < M; a++)
        if (n.n[a] >= 0) known *= n.n[a];
    for (int a = 0; a < M; a++)
        if (n.n[a] < 0) n.n[a] = known ? size / known : 0;
    Array<T, M> y;
    y.p = x.p;
    if (y.lay_out(n.n) != size) throw Error{"ValueError", "cannot reshape an array into this shape"};
    std::swap(y.own, x.own);
    return y;
}
template <int M, class I> Shape<M> lengths_in(const Array<I, 1> &x) {
    if (x.n[0] != M) throw Error{"ValueError", "a shape with another number of axes"};
    Shape<M> n;
    for (int a = 0; a < M; a++) n.n[a] = x.p[a * x.s[0]];
    return n;
}

template <class T, int N> Array<T, N> cut(Array<T, N> x, int axis, Int begin, Int end, Int step) {
    Int n = x.n[axis];
    if (step > 0) {
        Slice part = {begin == NONE ? 0 : begin, end == NONE ? END : end};
        part.fit(n);
        x.p += part.begin * x.s[axis];
        x.n[axis] = (part.end - part.begin + step - 1) / step;
    } else {
        Int from = begin == NONE ? n - 1 : std::clamp<Int>(begin < 0 ? begin + n : begin, -1, n - 1);
        Int to = end == NONE ? -1 : std::clamp<Int>(end < 0 ? end + n : end, -1, n - 1);
        x.n[axis] = std::max<Int>(from - to - step - 1, 0) / -step;
        if (x.n[axis]) x.p += from * x.s[axis];
    }
    x.s[axis] *= step;
    return x;
}
template <class T, int N> Array<T, N - 1> pick(const Array<T, N> &x, int axis, Int i) {
    if (i < 0) i += x.n[axis];
    if (i < 0 || i >= x.n[axis]) throw Error{"IndexError", "index out of bounds"};
    Array<T, N - 1> y;
    y.p = x.p + i * x.s[axis];
    for (int a = 0, to = 0; a < N; a++)
        if (a != axis) y.n[to] = x.n[a], y.s[to++] = x.s[a];
    y.share(x.own);
    return y;
}
// An array as many times as another one has room for.
template <class T, int N> Array<T, N> spread(Array<T, N> x, const Int *n) {
    for (int a = 0; a < N; a++) {
        if (x.n[a] == n[a]) continue;
        if (x.n[a] != 1) throw Error{"ValueError", "could not broadcast an array"};
        x.n[a] = n[a], x.s[a] = 0;
    }
    return x;
}

template <class T, int N> void require_length(const Array<T, N> &x, int axis, Int n) {
    if (x.n[axis] != n) throw Error{"AssertionError", "an array has another shape than is specified"};
}

template <class T, int N, class... A> Array<T, N> joined(int axis, const A &...parts) {
    Shape<N> n = shape_of(std::get<0>(std::tie(parts...)));
    n.n[axis] = (parts.n[axis] + ...);
    Array<T, N> y = empty(n, Type<T>{});
    Int begin = 0;
    auto put = [&](const Array<T, N> &part) {
        Array<T, N> to = cut(y, axis, begin, begin + part.n[axis], 1);
        for (int a = 0; a < N; a++)
            if (to.n[a] != part.n[a]) throw Error{"ValueError", "arrays to be joined have different lengths"};
        copy_into(to, part);
        begin += part.n[axis];
    };
    (put(parts), ...);
    return y;
}

template <class T> Array<T, 0> scalar(T x) {
    Array<T, 0> y = empty(Shape<0>{}, Type<T>{});
    *y.p = x;
    return y;
}
template <class T, class... X> Array<T, 1> vector(X... x) {
    Array<T, 1> y = empty(shape(sizeof...(X)), Type<T>{});
    T *p = y.p;
    ((*p++ = T(x)), ...);
    return y;
}
template <class T, int N> Array<T, N> constant(const T *entries, Shape<N> n) {
    Array<T, N> x;
    x.p = (T *)entries;
    x.lay_out(n.n);
    return x;
}
// Where the indices along two axes are equal: the last axis of what results.
template <class T, int N> Array<T, N - 1> diagonal(const Array<T, N> &x, int one, int other) {
    Array<T, N - 1> y;
    y.p = x.p, y.share(x.own);
    for (int a = 0, to = 0; a < N; a++)
        if (a != one && a != other) y.n[to] = x.n[a], y.s[to++] = x.s[a];
    y.n[N - 2] = std::min(x.n[one], x.n[other]), y.s[N - 2] = x.s[one] + x.s[other];
    return y;
}
static inline Array<Int, 1> range(Int begin, Int end, Int step) {
    if (step == 0) throw Error{"ZeroDivisionError", "a range with steps of zero"};
    Int n = std::max<Int>(0, (end - begin + step + (step > 0 ? -1 : 1)) / step);
    Array<Int, 1> x = empty(shape(n), Type<Int>{});
    for (Int i = 0; i < n; i++) x.p[i] = begin + i * step;
    return x;
}
template <class T> Array<T, 2> diagonal_matrix(const Array<T, 1> &entries) {
    Int n = entries.n[0];
    Array<T, 2> x = full(shape(n, n), T(0));
    for (Int i = 0; i < n; i++) x.p[i * n + i] = entries.p[i * entries.s[0]];
    return x;
}
// Each entry of what results is made of all up to it along an axis.
template <class T, int N, class F> Array<T, N> accumulated(const Array<T, N> &x, int axis, F f) {
    Array<T, N> y = copied(x);
    for (Int i = 1; i < y.n[axis]; i++) {
        Array<T, N - 1> before = pick(y, axis, i - 1), at = pick(y, axis, i);
        Operand each[] = {operand(before), operand(at)};
        over(N - 1, at.n, each, 1, [=](Int n, char **p, const Int *s) {
            for (Int k = 0; k < n; k++) {
                T &entry = *(T *)(p[1] + k * s[1]);
                entry = f(*(T *)(p[0] + k * s[0]), entry);
            }
        });
    }
    return y;
}

// ---- Entries by index, along the first axes

template <class I> Int place(const Array<I, 1> &index, Int i, Int n) {
    Int found = index.p[index.n[0] == 1 ? 0 : i * index.s[0]];
    if (found < 0) found += n;
    if (found < 0 || found >= n) throw Error{"IndexError", "index out of bounds"};
    return found;
}
template <class T, int N> Array<T, N> entry(const Array<T, N> &x, Int) { return x; }
template <class T, int N, class I, class... J>
auto entry(const Array<T, N> &x, Int i, const Array<I, 1> &index, const J &...more) {
    return entry(pick(x, 0, place(index, i, x.n[0])), i, more...);
}
// The shape that indices are spread to.
template <int M, class... I> Shape<M> common(const Array<I, M> &...index) {
    Shape<M> n;
    for (int a = 0; a < M; a++) {
        n.n[a] = 1;
        ((n.n[a] = index.n[a] == 1 ? n.n[a] : index.n[a]), ...);
        if (((index.n[a] != 1 && index.n[a] != n.n[a]) || ...))
            throw Error{"IndexError", "indices have different lengths"};
    }
    return n;
}
template <class T, int N, class... I> auto taken(const Array<T, N> &x, const Array<I, 1> &...index) {
    const int indexed = sizeof...(I);
    Shape<N - indexed + 1> n;
    n.n[0] = common(index...).n[0];
    for (int a = indexed; a < N; a++) n.n[a - indexed + 1] = x.n[a];
    auto y = empty(n, Type<T>{});
    for (Int i = 0; i < n.n[0]; i++) copy_into(pick(y, 0, i), entry(x, i, index...));
    return y;
}
template <class T, class U, int N, int M, class... I>
Array<T, N> put(bool adds, const Array<T, N> &x, const Array<U, M> &given, const Array<I, 1> &...index) {
    Array<T, N> y = copied(x);
    Int n[M] = {common(index...).n[0]};
    for (int a = 1; a < M; a++) n[a] = x.n[a + N - M];
    Array<U, M> from = spread(given, n);
    for (Int i = 0; i < n[0]; i++) {
        auto to = entry(y, i, index...);
        if (adds) add_into(to, pick(from, 0, i));
        else copy_into(to, pick(from, 0, i));
    }
    return y;
}

// Indices of several axes: what is taken has the axes of their common shape first.
template <class I, int M> Array<I, 1> flat(const Array<I, M> &index, const Shape<M> &n) {
    return reshaped<1>(spread(index, n.n), shape(-1));
}
template <int M, int R> Shape<M + R - 1> unfolded(const Shape<M> &n, const Int *folded) {
    Shape<M + R - 1> all;
    std::copy(n.n, n.n + M, all.n);
    std::copy(folded + 1, folded + R, all.n + M);
    return all;
}
template <class T, int N, int M, class... I>
std::enable_if_t<(M > 1), Array<T, N - int(sizeof...(I)) + M>>
taken(const Array<T, N> &x, const Array<I, M> &...index) {
    const int left = N - int(sizeof...(I)) + 1;
    Shape<M> n = common(index...);
    Array<T, left> y = taken(x, flat(index, n)...);
    return reshaped<left + M - 1>(y, unfolded<M, left>(n, y.n));
}
template <class T, class U, int N, int L, int M, class... I>
std::enable_if_t<(M > 1), Array<T, N>>
put(bool adds, const Array<T, N> &x, const Array<U, L> &given, const Array<I, M> &...index) {
    const int left = L - M + 1;
    Shape<M> n = common(index...);
    Shape<left> folded;
    folded.n[0] = -1;
    for (int a = 1; a < left; a++) folded.n[a] = x.n[a + N - left];
    Array<U, L> from = spread(given, unfolded<M, left>(n, folded.n).n);
    return put(adds, x, reshaped<left>(from, folded), flat(index, n)...);
}
// Where truths hold, along one of their axes, which has length n in what they index.
template <int M> Array<Int, 1> places(const Array<unsigned char, M> &given, int axis, Int n) {
    if (given.n[axis] != n) throw Error{"IndexError", "truths of another length than what they index"};
    Array<unsigned char, M> holds = whole(given);
    Array<Int, 1> x = empty(shape(holds.size()), Type<Int>{});
    Int step = 1, count = 0;
    for (int a = axis + 1; a < M; a++) step *= holds.n[a];
    for (Int i = 0; i < holds.size(); i++)
        if (holds.p[i]) x.p[count++] = i / step % n;
    x.n[0] = count;
    return x;
}

// ---- Matrices

template <class T> Matrix<T> as_matrix(const Array<T, 2> &x) {
    Int rows = x.n[0] > 1 ? x.s[0] : x.n[1], columns = x.n[1] > 1 ? x.s[1] : x.n[0];
    if (x.n[1] <= 1 || x.s[1] == 1) return {x.p, int(x.n[0]), int(x.n[1]), positive(rows), false};
    return {x.p, int(x.n[0]), int(x.n[1]), positive(columns), true};
}
template <class T> bool is_matrix(const Array<T, 2> &x) {
    return (x.n[1] <= 1 || x.s[1] == 1) ? x.n[0] <= 1 || x.s[0] >= x.n[1]
         : (x.n[0] <= 1 || x.s[0] == 1) && x.s[1] >= x.n[0];
}
template <class T> Array<T, 2> as_stored(const Array<T, 2> &x) { return is_matrix(x) ? x : copied(x); }

template <class T> Array<T, 2> product_of(const Array<T, 2> &given, const Array<T, 2> &other) {
    if (given.n[1] != other.n[0]) throw Error{"ValueError", "Shape mismatch of a product of matrices"};
    Array<T, 2> a = as_stored(given), b = as_stored(other);
    return product(as_matrix(a), as_matrix(b));
}
template <class T> Array<T, 1> product_of(const Array<T, 2> &given, const Array<T, 1> &x) {
    if (given.n[1] != x.n[0]) throw Error{"ValueError", "Shape mismatch of a product"};
    Array<T, 2> a = as_stored(given);
    return product(as_matrix(a), whole(x));
}
template <class T> Array<T, 1> product_of(const Array<T, 1> &x, const Array<T, 2> &b) {
    return product_of(rearranged(b, shape(1, 0)), x);
}
template <class T> Array<T, 0> product_of(const Array<T, 1> &x, const Array<T, 1> &y) {
    if (x.n[0] != y.n[0]) throw Error{"ValueError", "Shape mismatch of a product"};
    T total = 0;
    for (Int i = 0; i < x.n[0]; i++) total += x.p[i * x.s[0]] * y.p[i * y.s[0]];
    return scalar(total);
}

// The factor below or above the diagonal; NaN where there is none.
static Array<double, 2> cholesky(const Array<double, 2> &x, bool is_lower) {
    typedef void (*Potrf)(const char *, const int *, double *, const int *, int *);
    Array<double, 2> y = copied(x);
    int n = y.n[0], failed = 0;
    if (x.n[0] != x.n[1]) throw Error{"ValueError", "a Cholesky factor of a matrix that is not square"};
    if (n == 0) return y;
    ((Potrf)blas[4])(is_lower ? "U" : "L", &n, y.p, &n, &failed);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (failed) y.p[i * n + j] = NAN;
            else if (is_lower ? j > i : j < i) y.p[i * n + j] = 0.0;
    return y;
}
template <int N>
Array<double, N> solve_triangular(const Array<double, 2> &given, const Array<double, N> &b, bool is_lower,
                                  bool has_unit_diagonal) {
    typedef void (*Trtrs)(const char *, const char *, const char *, const int *, const int *,
                          const double *, const int *, double *, const int *, int *);
    if (given.n[0] != given.n[1] || given.n[0] != b.n[0])
        throw Error{"ValueError", "Shape mismatch of a triangular system"};
    Array<double, 2> a = as_stored(given);
    Matrix<double> m = as_matrix(a);
    Array<double, N> x = empty(shape_of(b), Type<double>{});
    x.s[0] = 1;
    if constexpr (N == 2) x.s[1] = x.n[0];
    copy_into(x, b);
    int n = m.rows, columns = 1, failed = 0;
    if constexpr (N == 2) columns = x.n[1];
    if (x.size() == 0) return x;
    // What is stored by rows is the transpose of what is read by columns.
    bool is_upper = is_lower != m.is_transposed;
    ((Trtrs)blas[5])(is_upper ? "U" : "L", m.is_transposed ? "N" : "T", has_unit_diagonal ? "U" : "N", &n,
                     &columns, m.p, &m.step, x.p, &n, &failed);
    if (failed) std::fill(x.p, x.p + x.size(), double(NAN));
    return x;
}

// ---- Functions of numbers

// The quotient rounded down, as NumPy's: 1 // 0.1 is 9, although 1 / 0.1 rounds to 10.
static double floor_of_quotient(double x, double y) {
    if (y == 0) return x / y;
    double rest = std::fmod(x, y), quotient = (x - rest) / y;
    if (rest != 0 && (rest < 0) != (y < 0)) quotient -= 1;
    double below = std::floor(quotient);
    return quotient - below > 0.5 ? below + 1 : below;
}
// Derivatives of the digamma function, of order n > 0: (-1)^(n+1) n! times a sum of (x + k)^-(n+1),
// whose rest beyond k = 9 is Euler and Maclaurin's, as in SciPy

static double polygamma(double n, double x) {
    const double terms[] = {12., -720., 30240., -1209600., 47900160., -1892437580.3183791606, 7.47242496e10,
                            -2.950130727918164224e12, 1.1646782814350067249e14, -4.5979787224074726105e15,
                            1.8152105401943546773e17, -7.1661652561756670113e18};
    const double s = n + 1, scale = (std::fmod(n, 2) ? 1 : -1) * std::tgamma(s);
    if (x != x || n < 0) return NAN;
    if (x <= 0 && x == std::floor(x)) return scale * INFINITY;
    if (x > 1e8) return scale * (1 / n + 1 / (2 * x)) * std::pow(x, -n);
    double total = std::pow(x, -s), last = total;
    for (int i = 0; i < 9 || x <= 9; i++) last = std::pow(++x, -s), total += last;
    total += last * x / n - 0.5 * last;
    double rising = 1;
    for (int i = 0, k = 0; i < 12; i++) {
        rising *= s + k++, last /= x;
        total += rising * last / terms[i];
        rising *= s + k++, last /= x;
    }
    return scale * total;
}

// ---- The hyperbolic tangent: without branches, so that loops with it are vectors'

static inline __attribute__((always_inline)) double tanh(double x) {
    const double coefficients[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                                   1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6,
                                   0.5, 1.0};
    double y = std::fabs(x), total = 0;
    y = -(y > 20 ? 20 : y) / 64;
#pragma GCC unroll 12
    for (int k = 0; k < 12; k++) total = std::fma(total, y, coefficients[k]);
    double e = total * y;
#pragma GCC unroll 7
    for (int k = 0; k < 7; k++) e *= e + 2;
    return std::copysign(-e / (e + 2), x);
}

}  // namespace graphs
