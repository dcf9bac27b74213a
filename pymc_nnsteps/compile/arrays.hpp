// Arrays as kernels use them, with the names of NumPy: what translation.py translates to.
//
// Entries along the last axis are neighbours. An array that is made of another, which lives on, is a
// view of it; all others keep their memory, with the number of arrays that share it.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <algorithm>

static const Int END = std::numeric_limits<Int>::max();

struct Memory { Int uses; };

template <int N> struct Shape { Int n[N]; };
template <class... I> Shape<sizeof...(I)> shape(I... n) { return {{Int(n)...}}; }
static inline Shape<1> as_shape(Int n) { return {{n}}; }
template <int N> Shape<N> as_shape(Shape<N> n) { return n; }

template <class T, int N> struct Array {
    T *p = nullptr;
    Int n[N], s[N];  // lengths and distances of axes
    Memory *own = nullptr;

    Array() {}
    Array(const Array &x) : p(x.p) {
        for (int a = 0; a < N; a++) n[a] = x.n[a], s[a] = x.s[a];
        share(x.own);
    }
    void share(Memory *memory) {
        own = memory;
        if (own) own->uses++;
    }
    // Set the lengths, with entries one after another, and return how many these are.
    Int lay_out(const Int *lengths) {
        Int total = 1;
        for (int a = N - 1; a >= 0; a--) n[a] = lengths[a], s[a] = total, total *= n[a];
        return total;
    }
    Array &operator=(const Array &x) {
        Array kept(x);
        std::swap(own, kept.own);
        p = x.p;
        for (int a = 0; a < N; a++) n[a] = x.n[a], s[a] = x.s[a];
        return *this;
    }
    ~Array() { leave(); }
    void leave() {
        if (own && --own->uses == 0) free(own);
        own = nullptr;
    }
    Int size() const {
        Int total = 1;
        for (int a = 0; a < N; a++) total *= n[a];
        return total;
    }
    // Whether the entries stand one after another, along the last axis first or the other way.
    bool is_whole(bool in_columns = false) const {
        Int step = 1;
        for (int i = 0; i < N; i++) {
            int a = in_columns ? i : N - 1 - i;
            if (s[a] != step && n[a] > 1) return false;
            step *= n[a];
        }
        return true;
    }
};

template <class T> struct Transposed { Array<T, 2> x; };

template <class T> struct Type {};
template <class T, int N> Type<T> dtype(const Array<T, N> &) { return {}; }
template <class T, class V> T cast(Type<T>, V x) { return T(x); }
template <class T> T eps(Type<T>) { return std::numeric_limits<T>::epsilon(); }

template <class T, int N> Array<T, N> empty(Shape<N> shape, Type<T>) {
    Array<T, N> x;
    for (int a = 0; a < N; a++)
        if (shape.n[a] < 0) throw Error{"ValueError", "negative dimensions are not allowed"};
    const Int offset = 64, size = x.lay_out(shape.n);
    x.own = (Memory *)aligned_alloc(64, (offset + size * sizeof(T) + 63) / 64 * 64);
    if (!x.own) throw Error{"MemoryError", "no memory for an array"};
    x.own->uses = 1;
    x.p = (T *)((char *)x.own + offset);
    return x;
}

template <class T, int N> Shape<N> shape_of(const Array<T, N> &x) {
    Shape<N> n;
    for (int a = 0; a < N; a++) n.n[a] = x.n[a];
    return n;
}
template <class T, int N> Int len(const Array<T, N> &x) { return x.n[0]; }

// ---- Types of numbers: those of Numba

template <class A> constexpr bool is_number = std::is_arithmetic_v<A>;
template <class A> using Wide = std::conditional_t<sizeof(A) < 8 && std::is_integral_v<A>, Int, A>;

template <class A, class B> struct CommonOf {
    static constexpr bool are_integers = std::is_integral_v<A> && std::is_integral_v<B>;
    static_assert(!are_integers || std::is_same_v<A, B>, "integers with and without a sign");
    typedef std::conditional_t<std::is_same_v<A, B>, A, double> type;
};
// Of the result of arithmetic.
template <class A, class B> using Common = typename CommonOf<Wide<A>, Wide<B>>::type;

template <class T> using Quotient = std::conditional_t<std::is_integral_v<T>, double, T>;

// A number as one of another type that can hold any like it.
template <class T, class V> T as(V x) {
    static_assert(std::is_same_v<T, V> || std::is_same_v<T, Common<T, V>>,
                  "a name keeps its type: set it to a number of the wider one first");
    return T(x);
}
template <class T, class V> void assign(T &x, const V &y) {
    if constexpr (is_number<T>) x = as<T>(y);
    else x = y;
}
template <class B, class A> auto beside(const A &x) {
    typedef std::decay_t<B> V;
    if constexpr (is_number<A> && is_number<V> && !std::is_same_v<A, V>) return Common<A, V>(x);
    else return x;
}

static inline bool truth(bool x) { return x; }
template <class T> bool truth(T) = delete;  // "and" and "or" would give one of two values

template <class T> Wide<T> negative(T x) {
    static_assert(!std::is_same_v<T, uint64_t>, "the negative of a number without sign");
    return -Wide<T>(x);
}
template <class T> T floor_of_quotient(T x, T y) {
    static_assert(std::is_integral_v<T>, "// and % are for integers");
    return y == 0 ? 0 : x / y - (x % y != 0 && (x < 0) != (y < 0));
}
template <class T> T rest_of_quotient(T x, T y) {
    static_assert(std::is_integral_v<T>, "// and % are for integers");
    T rest = y == 0 ? 0 : x % y;
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

// ---- Parts

struct Slice {
    Int begin, end;
    // As Python has it: numbers below zero count from the end, and what lies outside is left out.
    void fit(Int n) {
        begin = std::clamp<Int>(begin < 0 ? begin + n : begin, 0, n);
        end = std::clamp<Int>(end < 0 ? end + n : end, begin, n);
    }
};

static inline void check(Int i, Int n) {
#ifdef CHECKED
    if (i < 0 || i >= n) throw Error{"IndexError", "an index below zero or beyond the last entry"};
#endif
}

template <int FROM, int TO, class T, int N, int M> void keep(const Array<T, N> &x, Array<T, M> &y) {
    if constexpr (FROM < N) {
        y.n[TO] = x.n[FROM], y.s[TO] = x.s[FROM];
        keep<FROM + 1, TO + 1>(x, y);
    }
}
template <int FROM, int TO, class T, int N, int M, class I, class... J>
void keep(const Array<T, N> &x, Array<T, M> &y, I i, J... j) {
    if constexpr (std::is_same_v<I, Slice>) {
        i.fit(x.n[FROM]);
        y.p += i.begin * x.s[FROM];
        y.n[TO] = i.end - i.begin, y.s[TO] = x.s[FROM];
        keep<FROM + 1, TO + 1>(x, y, j...);
    } else {
        static_assert(FROM < N - 1, "entries of a column are no neighbours");
        check(i, x.n[FROM]);
        y.p += i * x.s[FROM];
        keep<FROM + 1, TO>(x, y, j...);
    }
}
template <int AXIS, class T, int N> T *entry(const Array<T, N> &, T *p) { return p; }
template <int AXIS, class T, int N, class... J>
T *entry(const Array<T, N> &x, T *p, Int i, J... j) {
    check(i, x.n[AXIS]);
    return entry<AXIS + 1>(x, p + (AXIS == N - 1 ? i : i * x.s[AXIS]), j...);
}
template <class T, int N, class... I> decltype(auto) at(const Array<T, N> &x, I... i) {
    static_assert(((std::is_same_v<I, Slice> || std::is_integral_v<I>) && ...), "an index");
    constexpr int numbers = ((std::is_same_v<I, Slice> ? 0 : 1) + ...);
    if constexpr (numbers == N) {
        return (*entry<0>(x, x.p, Int(i)...));
    } else {
        Array<T, N - numbers> y;
        y.p = x.p;
        y.share(x.own);
        keep<0, 0>(x, y, i...);
        return y;
    }
}
template <class T, int N, class... I> decltype(auto) at(Array<T, N> &&x, I... i) {
    constexpr int numbers = ((std::is_same_v<I, Slice> ? 0 : 1) + ...);
    if constexpr (numbers == N) return T(at((const Array<T, N> &)x, i...));
    else return at((const Array<T, N> &)x, i...);
}
template <class T, int N> Array<T, N> at(const Array<T, N> &x, const Array<Int, 1> &order) {
    Shape<N> n = shape_of(x);
    n.n[0] = len(order);
    Array<T, N> y = empty(n, Type<T>{});
    Int rest = y.size() / std::max<Int>(len(order), 1);
    for (Int i = 0; i < len(order); i++) check(order.p[i], x.n[0]);
    for (Int i = 0; i < len(order); i++)
        if constexpr (N == 1) y.p[i] = x.p[order.p[i]];
        else for (Int j = 0; j < rest; j++) y.p[i * rest + j] = x.p[order.p[i] * x.s[0] + j];
    return y;
}

template <class T, int N> Array<T, N> at(Array<T, N> &&x, const Array<Int, 1> &order) {
    return at((const Array<T, N> &)x, order);
}

template <int K, class... T> const auto &item(const std::tuple<T...> &x) { return std::get<K>(x); }
template <int K, class... T> auto item(std::tuple<T...> &&x) { return std::get<K>(x); }
template <int K, int N> Int item(const Shape<N> &x) { return x.n[K]; }
template <int K, class T, int N> decltype(auto) item(const Array<T, N> &x) { return at(x, K); }
template <int K, class T, int N> decltype(auto) item(Array<T, N> &&x) { return at(std::move(x), K); }

// ---- Entry by entry

template <class T, int N, class F> void each(const Array<T, N> &x, F f) {
    if constexpr (N == 1) for (Int i = 0; i < x.n[0]; i++) f(x.p[i]);
    else for (Int i = 0; i < x.n[0]; i++) each(at(x, i), f);
}
template <class T, class U, int N, class F> void both(const Array<T, N> &x, const Array<U, N> &y, F f) {
    if constexpr (N == 1) {
        if (y.n[0] != x.n[0] && y.n[0] != 1)
            throw Error{"ValueError", "arrays of different lengths"};
        if (y.n[0] == x.n[0]) for (Int i = 0; i < x.n[0]; i++) f(x.p[i], y.p[i]);
        else for (Int i = 0; i < x.n[0]; i++) f(x.p[i], y.p[0]);
    } else {
        if (y.n[0] != x.n[0]) throw Error{"ValueError", "arrays of different lengths"};
        for (Int i = 0; i < x.n[0]; i++) both(at(x, i), at(y, i), f);
    }
}
template <class R, class T, int N, class F> Array<R, N> mapped(const Array<T, N> &x, F f) {
    Array<R, N> y = empty(shape_of(x), Type<R>{});
    both(y, x, [&](R &to, T from) { to = f(from); });
    return y;
}
template <class T, int N> Array<T, N> copy_of(const Array<T, N> &x) {
    return mapped<T>(x, [](T v) { return v; });
}
template <class T> Array<T, 2> copy_of(const Transposed<T> &t) {
    Array<T, 2> y = empty(shape(t.x.n[1], t.x.n[0]), Type<T>{});
    for (Int i = 0; i < y.n[0]; i++)
        for (Int j = 0; j < y.n[1]; j++) at(y, i, j) = at(t.x, j, i);
    return y;
}
template <class T, int N> Array<T, N> contiguous(const Array<T, N> &x) {
    if constexpr (N == 0) return x;
    else return x.is_whole() ? x : copy_of(x);
}
template <class R, class T, int N> Array<R, N> astype(const Array<T, N> &x, Type<R>) {
    return mapped<R>(x, [](T v) { return R(v); });
}
template <class T, int N> const char *end_of(const Array<T, N> &x) {
    Int last = 0;
    for (int a = 0; a < N; a++) last += (x.n[a] - 1) * x.s[a];
    return (const char *)(x.p + last + 1);
}
// An array, or a copy where to fill another would overwrite it first.
template <class T, int N, class U, int M> Array<T, N> apart(const Array<T, N> &x, const Array<U, M> &to) {
    const char *p = (const char *)x.p, *q = (const char *)to.p;
    bool is_other = p == q || !x.size() || !to.size() || end_of(to) <= p || end_of(x) <= q;
    return is_other ? x : copy_of(x);
}
template <class T, int N> Array<T, 1> flat(const Array<T, N> &given) {
    Array<T, N> x = contiguous(given);
    Array<T, 1> y;
    y.p = x.p, y.n[0] = x.size(), y.s[0] = 1;
    std::swap(y.own, x.own);
    return y;
}
template <class T, int N> Array<T, N> folded(const Array<T, 1> &x, Shape<N> shape) {
    Array<T, N> y;
    y.p = x.p, y.share(x.own);
    if (y.lay_out(shape.n) != x.size())
        throw Error{"ValueError", "cannot reshape an array into this shape"};
    return y;
}
template <class T, class V> std::enable_if_t<std::is_arithmetic_v<T>> set(T &x, V v) { x = T(v); }
template <class T, int N, class V> void set(Array<T, N> x, V v) {
    if constexpr (std::is_arithmetic_v<V>) each(x, [&](T &to) { to = T(v); });
    else both(x, apart(v, x), [](T &to, auto from) { to = T(from); });
}

template <class A, class B, class F> auto entry_by_entry(const A &x, const B &y, F f) {
    if constexpr (is_number<B>) {
        return mapped<decltype(f(*x.p, y))>(x, [&](auto v) { return f(v, y); });
    } else if constexpr (is_number<A>) {
        return mapped<decltype(f(x, *y.p))>(y, [&](auto v) { return f(x, v); });
    } else {
        auto z = astype(x, Type<decltype(f(*x.p, *y.p))>{});
        both(z, y, [&](auto &to, auto v) { to = f(to, v); });
        return z;
    }
}
template <class T, class B, class F>
auto entry_by_entry(const Transposed<T> &x, const B &y, F f) {
    return entry_by_entry(copy_of(x), y, f);
}

// name(x, y), and name_to(x, y) for x op= y. A variable keeps its type, entries of arrays theirs.
#define OPERATION(name, formula) \
    struct name##_numbers { \
        template <class A, class B> auto operator()(A a, B b) const { \
            typedef Common<A, B> T; \
            T x = T(a), y = T(b); \
            return formula; \
        } \
    }; \
    template <class A, class B> auto name(const A &x, const B &y) { \
        if constexpr (is_number<A> && is_number<B>) return name##_numbers()(x, y); \
        else return entry_by_entry(x, y, name##_numbers()); \
    } \
    template <class T, class V> void name##_to(T &x, const V &y) { \
        if constexpr (is_number<T>) assign(x, name(x, y)); \
        else name##_into(x, y); \
    } \
    template <class T, class V> std::enable_if_t<is_number<T>> name##_into(T &x, const V &y) { \
        x = T(name(x, y)); \
    } \
    template <class T, int N, class V> void name##_into(const Array<T, N> &x, const V &y) { \
        if constexpr (is_number<V>) each(x, [&](T &to) { to = T(name##_numbers()(to, y)); }); \
        else both(x, apart(y, x), [](T &to, auto v) { to = T(name##_numbers()(to, v)); }); \
    }
OPERATION(add, x + y)
OPERATION(subtract, x - y)
OPERATION(multiply, x * y)
OPERATION(divide, Quotient<T>(x) / Quotient<T>(y))
OPERATION(floor_divide, floor_of_quotient(x, y))
OPERATION(modulo, rest_of_quotient(x, y))
OPERATION(shift_left, x << y)
OPERATION(shift_right, x >> y)
OPERATION(bit_or, x | y)
OPERATION(bit_and, x & y)
OPERATION(bit_xor, x ^ y)
#undef OPERATION

#define COMPARISON(name, op) \
    struct name##_numbers { \
        template <class A, class B> bool operator()(A a, B b) const { \
            typedef Common<A, B> T; \
            return T(a) op T(b); \
        } \
    }; \
    template <class A, class B> auto name(const A &x, const B &y) { \
        if constexpr (is_number<A> && is_number<B>) return name##_numbers()(x, y); \
        else { \
            static_assert(is_number<A> || is_number<B>, "arrays are compared with numbers"); \
            return entry_by_entry(x, y, name##_numbers()); \
        } \
    }
COMPARISON(equal, ==)
COMPARISON(not_equal, !=)
COMPARISON(less, <)
COMPARISON(less_equal, <=)
COMPARISON(greater, >)
COMPARISON(greater_equal, >=)
#undef COMPARISON
template <int N> bool equal(Shape<N> x, Shape<N> y) { return std::equal(x.n, x.n + N, y.n); }
template <int N> bool not_equal(Shape<N> x, Shape<N> y) { return !equal(x, y); }

template <int N> bool any(const Array<bool, N> &x) {
    bool found = false;
    each(x, [&](bool e) { found = found || e; });
    return found;
}
template <int N> bool all(const Array<bool, N> &x) {
    bool found = true;
    each(x, [&](bool e) { found = found && e; });
    return found;
}

// ---- Functions of numbers

template <class A, class B> auto larger(A a, B b) {
    typedef Common<A, B> T;
    return T(b) >= T(a) ? T(b) : T(a);
}
template <class A, class B> auto smaller(A a, B b) {
    typedef Common<A, B> T;
    return T(b) <= T(a) ? T(b) : T(a);
}
template <class T, class V> T with_bits_of(V x) {
    static_assert(sizeof(T) == sizeof(V), "a view of a number has as many bits");
    T y;
    std::memcpy(&y, &x, sizeof(T));
    return y;
}
template <class T> T square(T x) { return x * x; }

#define FUNCTION(name) \
    template <class T> auto name##_of(T x) { return std::name(x); } \
    template <class T, int N> auto name##_of(const Array<T, N> &x) { \
        typedef decltype(std::name(T())) R; \
        return mapped<R>(x, [](T v) { return R(std::name(v)); }); \
    }
FUNCTION(sqrt)
FUNCTION(abs)
FUNCTION(exp)
FUNCTION(log)
FUNCTION(log1p)
FUNCTION(expm1)
FUNCTION(erfc)
FUNCTION(isnan)
FUNCTION(isinf)
FUNCTION(isfinite)
#undef FUNCTION

// ---- Functions of arrays

template <class T, int N> Array<T, N> full(Shape<N> n, T value) {
    Array<T, N> x = empty(n, Type<T>{});
    std::fill(x.p, x.p + x.size(), value);
    return x;
}
static inline Array<Int, 1> arange(Int n) {
    Array<Int, 1> x = empty(shape(n), Type<Int>{});
    for (Int i = 0; i < n; i++) x.p[i] = i;
    return x;
}
template <class T> Array<T, 2> eye(Int n, Int m, Type<T>) {
    Array<T, 2> x = full(shape(n, m), T(0));
    for (Int i = 0; i < std::min(n, m); i++) at(x, i, i) = 1;
    return x;
}
template <class T> Array<Int, 1> argsort(const Array<T, 1> &x) {
    Array<Int, 1> order = arange(len(x));
    const T *p = x.p;
    std::stable_sort(order.p, order.p + len(x), [=](Int i, Int j) { return p[i] < p[j]; });
    return order;
}
template <class T> Int argmax(const Array<T, 1> &x) {
    if (len(x) == 0) throw Error{"ValueError", "the largest of no numbers"};
    Int best = 0;
    for (Int i = 0; i < len(x); i++) {
        if (x.p[i] != x.p[i]) return i;
        if (x.p[i] > x.p[best]) best = i;
    }
    return best;
}
template <class T> T largest(const Array<T, 1> &x) { return x.p[argmax(x)]; }
template <class T, class V> Int searchsorted(const Array<T, 1> &x, V v) {
    return v != v ? len(x) : std::lower_bound(x.p, x.p + len(x), v) - x.p;
}

// ---- Products of matrices: SciPy's BLAS and LAPACK

extern "C" __attribute__((visibility("default"))) void *blas[6];
void *blas[6];  // dgemm, sgemm, dgemv, sgemv, dpotrf, dtrtrs

template <class T> struct Matrix { const T *p; int rows, columns, step; bool is_transposed; };
static inline int positive(Int n) { return n > 0 ? int(n) : 1; }
template <class T> Matrix<T> matrix(const Array<T, 2> &x) {
    return {x.p, int(x.n[0]), int(x.n[1]), positive(x.n[0] > 1 ? x.s[0] : x.n[1]), false};
}
template <class T> Matrix<T> matrix(const Transposed<T> &t) {
    Matrix<T> m = matrix(t.x);
    return {m.p, m.columns, m.rows, m.step, true};
}
template <class T> Array<T, 2> product(Matrix<T> a, Matrix<T> b) {
    typedef void (*Gemm)(const char *, const char *, const int *, const int *, const int *,
                         const T *, const T *, const int *, const T *, const int *, const T *, T *,
                         const int *);
    Array<T, 2> c = empty(shape(a.rows, b.columns), Type<T>{});
    if (c.size() == 0) return c;
    if (a.columns == 0) return full(shape_of(c), T(0));
    T one = 1, zero = 0;
    Gemm gemm = (Gemm)blas[sizeof(T) == 8 ? 0 : 1];
    gemm(b.is_transposed ? "t" : "n", a.is_transposed ? "t" : "n", &b.columns, &a.rows, &a.columns,
         &one, b.p, &b.step, a.p, &a.step, &zero, c.p, &b.columns);
    return c;
}
template <class T> Array<T, 1> product(Matrix<T> a, const Array<T, 1> &x) {
    typedef void (*Gemv)(const char *, const int *, const int *, const T *, const T *, const int *,
                         const T *, const int *, const T *, T *, const int *);
    Array<T, 1> y = empty(shape(a.rows), Type<T>{});
    if (a.rows == 0) return y;
    if (a.columns == 0) return full(shape_of(y), T(0));
    T one = 1, zero = 0;
    int step = 1, rows = a.is_transposed ? a.columns : a.rows;
    int columns = a.is_transposed ? a.rows : a.columns;
    Gemv gemv = (Gemv)blas[sizeof(T) == 8 ? 2 : 3];
    gemv(a.is_transposed ? "n" : "t", &columns, &rows, &one, a.p, &a.step, x.p, &step, &zero, y.p,
         &step);
    return y;
}
template <class A, class B> auto dot(const A &a, const B &b) { return product(matrix(a), matrix(b)); }
template <class A, class T> auto dot(const A &a, const Array<T, 1> &x) { return product(matrix(a), x); }
template <class T> auto dot(const Array<T, 1> &x, const Array<T, 2> &b) {
    return product(matrix(Transposed<T>{b}), x);
}

// ---- NumPy's generators

struct Bits {
    void *state;
    uint64_t (*next_uint64)(void *);
    uint32_t (*next_uint32)(void *);
    double (*next_double)(void *);
    uint64_t (*next_raw)(void *);
};
extern "C" double random_standard_normal(Bits *);
extern "C" double random_standard_exponential(Bits *);
extern "C" double random_standard_gamma(Bits *, double);

struct Generator {
    Bits *bits;
    double random() const { return bits->next_double(bits->state); }
    double standard_normal() const { return random_standard_normal(bits); }
    double standard_exponential() const { return random_standard_exponential(bits); }
    double standard_gamma(double a) const { return random_standard_gamma(bits, a); }
};

// ---- What calls.cpp passes and is given

template <class T, int N> Array<T, N> array_of(const Given &given) {
    Array<T, N> x;
    x.p = (T *)given.p;
    for (int a = 0; a < N; a++) x.n[a] = given.n[a], x.s[a] = given.s[a] / Int(sizeof(T));
    return x;
}
template <class T> char letter() {
    return std::is_same_v<T, double> ? 'd' : std::is_same_v<T, float> ? 'f'
         : std::is_same_v<T, bool> ? '?' : std::is_same_v<T, uint64_t> ? 'Q' : 'q';
}
template <class T, int N> void give(Results &results, const Array<T, N> &found) {
    Array<T, N> x = contiguous(found);
    Result &result = results.each[results.count++];
    result.p = x.p, result.own = x.own, result.type = letter<T>(), result.n_axes = N;
    for (int a = 0; a < N; a++) result.n[a] = x.n[a];
    x.own = nullptr;  // the reference goes with the result
}
template <class T> std::enable_if_t<std::is_arithmetic_v<T>> give(Results &results, T x) {
    static_assert(!std::is_same_v<T, uint64_t>, "not all its digits would be given");
    Result &result = results.each[results.count++];
    result.n_axes = -1, result.type = letter<T>(), result.number = double(x);
}
template <class... T> void give(Results &results, const std::tuple<T...> &found) {
    std::apply([&](const T &...x) { (give(results, x), ...); }, found);
}

// A unit as a function of arrays, to one vector.
struct Function {
    void (*unit)(const Given *, Results *);

    template <class T, int N> static Given given(const Array<T, N> &x) {
        Given g;
        g.p = x.p;
        for (int a = 0; a < N; a++) g.n[a] = x.n[a], g.s[a] = x.s[a] * Int(sizeof(T));
        return g;
    }
    template <class... A> std::tuple<Array<double, 1>> operator()(const std::tuple<A...> &arrays) const {
        Results results;
        results.count = 0, results.error.type = nullptr;
        std::apply([&](const A &...x) {
            const Given all[] = {given(x)...};
            unit(all, &results);
        }, arrays);
        if (results.error.type) throw results.error;
        const Result &found = results.each[0];
        Array<double, 1> y;
        y.p = (double *)found.p, y.n[0] = found.n[0], y.s[0] = 1, y.own = (Memory *)found.own;
        return std::make_tuple(y);
    }
};
