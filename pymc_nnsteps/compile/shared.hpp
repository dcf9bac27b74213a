// What units of code and the extension modules share: arguments, results, loops over arrays.

typedef long long Int;
static const int MOST_AXES = 4, MOST_RESULTS = 8;

struct Error { const char *type, *message; };
struct Given { void *p; Int n[MOST_AXES], s[MOST_AXES]; double number; };
struct Result { void *p, *own; char type; int n_axes; Int n[MOST_AXES]; double number; };
struct Results { int count; Result each[MOST_RESULTS]; Error error; };

// Loop over arrays with lengths n and distances in bytes s, by axis and array: the axes in the order
// of memory of the array `leading`, those that follow each other joined. The innermost loop is given
// its length, first entries, which are moved, and distances.
template <int AXES, int ARRAYS, class I, class F>
void walk(int n_axes, int n_arrays, int leading, I *n, I (*s)[ARRAYS], char **p, F inner) {
    int kept = 0, joined = 0, order[AXES];
    for (int a = 0; a < n_axes; a++) {
        if (n[a] == 1) continue;
        int to = kept++;
        for (; to > 0 && s[order[to - 1]][leading] < s[a][leading]; to--) order[to] = order[to - 1];
        order[to] = a;
    }
    I length[AXES], step[AXES][ARRAYS], at[AXES] = {};
    for (int i = 0; i < kept; i++) {
        int a = order[i];
        bool follows = joined > 0;
        for (int k = 0; follows && k < n_arrays; k++) follows = step[joined - 1][k] == n[a] * s[a][k];
        int to = follows ? joined - 1 : joined;
        length[to] = follows ? length[to] * n[a] : n[a];
        for (int k = 0; k < n_arrays; k++) step[to][k] = s[a][k];
        joined = to + 1;
    }
    if (joined == 0) {
        for (int k = 0; k < n_arrays; k++) step[0][k] = 0;
        return inner(I(1), p, step[0]);
    }
    while (true) {
        inner(length[joined - 1], p, step[joined - 1]);
        int a = joined - 2;
        for (; a >= 0; a--) {
            for (int k = 0; k < n_arrays; k++) p[k] += step[a][k];
            if (++at[a] < length[a]) break;
            for (int k = 0; k < n_arrays; k++) p[k] -= length[a] * step[a][k];
            at[a] = 0;
        }
        if (a < 0) return;
    }
}
