"""Factorisations and products of small matrices, sums of groups, and when digits are lost."""

import math

import numpy as np

from pymc_nnsteps.compile.jit import inline, jit

Array = np.ndarray
MOST_LOST = 1e-6
"""Part of a precision below which it is not reached by subtraction."""

SUMS = 8
"""Sums that a processor makes at once."""

ROUNDING = 64
"""Part of a precision, in units of the rounding of one, below which nothing is known of it."""

TOO_PRECISE = (
    "a precision matrix is not positive definite in floating-point numbers: a noise is too small "
    "beside the prior for them to hold the posterior; rescale, use a larger noise or a tighter "
    "prior, or remove columns that repeat others"
)


@jit
def copy(source: Array, target: Array) -> None:
    """``target[:] = source``: Numba compiles the error of an assignment for seconds."""
    for j in range(len(source)):
        target[j] = source[j]


@jit
def put(source: Array, target: Array, first_row: int, first_column: int) -> None:
    """Copy a matrix to a part of another one."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[first_row + i, first_column + j] = source[i, j]


@inline
def rows_are_equal(matrix: Array, first: int, second: int) -> bool:
    """Whether two rows of a matrix have the same entries."""
    equal = True
    for j in range(matrix.shape[1]):
        equal = equal and matrix[first, j] == matrix[second, j]
    return equal


@inline
def sum_of(terms: Array) -> float:
    """Sum of a vector, in several sums, as a sum waits for the one before it."""
    sums, rest = np.zeros(SUMS), len(terms) % SUMS
    for n in range(rest):
        sums[n] += terms[n]
    for first in range(rest, len(terms), SUMS):
        for lane in range(SUMS):
            sums[lane] += terms[first + lane]
    total = 0.0
    for lane in range(SUMS):
        total += sums[lane]
    return total


@inline
def inner_product(x: Array, y: Array) -> float:
    """Sum of products of the entries of two vectors, in several sums."""
    sums, rest = np.zeros(SUMS), len(x) % SUMS
    for n in range(rest):
        sums[n] += x[n] * y[n]
    for first in range(rest, len(x), SUMS):
        for lane in range(SUMS):
            sums[lane] += x[first + lane] * y[first + lane]
    total = 0.0
    for lane in range(SUMS):
        total += sums[lane]
    return total


@jit
def try_to_factorise(matrix: Array) -> float:
    """Overwrite the upper triangle with U, ``matrix = U^T U``; return the last pivot."""
    n = len(matrix)
    pivot = 1.0
    for j in range(n):
        # Four rows at a time, as a row is then read and written a quarter as often.
        for i in range(0, j - 3, 4):
            a, b = matrix[i, j], matrix[i + 1, j]
            c, d = matrix[i + 2, j], matrix[i + 3, j]
            for k in range(j, n):
                matrix[j, k] -= (a * matrix[i, k] + b * matrix[i + 1, k]) + (
                    c * matrix[i + 2, k] + d * matrix[i + 3, k]
                )
        for i in range(j - j % 4, j):
            scale = matrix[i, j]
            for k in range(j, n):
                matrix[j, k] -= scale * matrix[i, k]
        pivot = float(matrix[j, j])
        if not pivot > 0.0:
            return pivot
        root = math.sqrt(pivot)
        matrix[j, j] = root
        for k in range(j + 1, n):
            matrix[j, k] /= root
    return pivot


@inline
def fill_factor(matrix: Array, factor: Array) -> float:
    """Fill the Cholesky factor, and return the last pivot, as of :func:`try_to_factorise`."""
    put(matrix, factor, 0, 0)
    return try_to_factorise(factor)


@jit
def factorise(matrix: Array) -> bool:
    """Overwrite the upper triangle with U, ``matrix = U^T U``; return whether that exists."""
    pivot = try_to_factorise(matrix)
    if pivot <= 0.0:
        raise np.linalg.LinAlgError(TOO_PRECISE)
    return pivot > 0.0


@jit
def solve_transposed(factor: Array, vector: Array) -> None:
    """Overwrite the vector with ``U^{-T} vector``."""
    for j in range(len(vector)):
        vector[j] /= factor[j, j]
        for k in range(j + 1, len(vector)):
            vector[k] -= factor[j, k] * vector[j]


@jit
def solve(factor: Array, vector: Array) -> None:
    """Overwrite the vector with ``U^{-1} vector``."""
    n = len(vector)
    for j in range(n - 1, -1, -1):
        # Four sums, as a sum waits for the one before it.
        a, b, c, d = vector[j], 0.0, 0.0, 0.0
        rest = (n - 1 - j) % 4
        for k in range(j + 1, j + 1 + rest):
            a -= factor[j, k] * vector[k]
        for k in range(j + 1 + rest, n, 4):
            a -= factor[j, k] * vector[k]
            b -= factor[j, k + 1] * vector[k + 1]
            c -= factor[j, k + 2] * vector[k + 2]
            d -= factor[j, k + 3] * vector[k + 3]
        vector[j] = ((a + b) + (c + d)) / factor[j, j]


@jit
def solve_rows_transposed(factor: Array, rows: Array) -> None:
    """Overwrite a matrix with ``U^{-T} rows``."""
    n, width = rows.shape
    for j in range(n):
        for i in range(width):
            rows[j, i] /= factor[j, j]
        for k in range(j + 1, n):
            scale = factor[j, k]
            for i in range(width):
                rows[k, i] -= scale * rows[j, i]


@inline
def invert_by_factor(matrix: Array, inverse: Array) -> bool:
    """Fill the inverse of a positive definite matrix, which is overwritten; False if it is NaN."""
    inverse[:] = 0.0
    for i in range(len(matrix)):
        inverse[i, i] = 1.0
    if not factorise(matrix):
        return False
    solve_rows_transposed(matrix, inverse)
    # The product of a lower triangle's transpose and itself, from its first rows on.
    for i in range(len(matrix)):
        for j in range(i, len(matrix)):
            total = 0.0
            for k in range(j, len(matrix)):
                total += inverse[k, i] * inverse[k, j]
            inverse[i, j] = total
            inverse[j, i] = total
    return True


@jit
def weighted_gram(design: Array, weight: Array) -> Array:
    """``C^T diag(w) C``."""
    scaled = np.empty(design.shape, design.dtype)
    for i in range(design.shape[0]):
        root = math.sqrt(weight[i])
        for j in range(design.shape[1]):
            scaled[i, j] = root * design[i, j]
    return np.dot(scaled.T, scaled)


@jit
def keeps_digits(matrix: Array, factor: Array) -> bool:
    """Whether no pivot of a Cholesky factor is what subtraction left of a much larger number."""
    least = max(MOST_LOST, math.sqrt(np.finfo(matrix.dtype).eps))
    kept = True
    for j in range(len(matrix)):
        kept = kept and least * matrix[j, j] <= factor[j, j] * factor[j, j] < math.inf
    return kept


@jit
def all_keep_digits(matrices: Array, factors: Array) -> bool:
    """:func:`keeps_digits` of each of a stack of matrices."""
    kept = True
    for i in range(len(matrices)):
        kept = kept and keeps_digits(matrices[i], factors[i])
    return kept


@jit
def is_rounding(diagonal: Array, roots: Array) -> bool:
    """Whether a pivot of a factorisation is of the size of rounding; not if there is a NaN."""
    least, found = ROUNDING * np.finfo(diagonal.dtype).eps, False
    for j in range(len(diagonal)):
        found = found or roots[j] * roots[j] < least * diagonal[j]
    return found


@jit
def refuse_lost(diagonal: Array, roots: Array, block: Array) -> Array:
    """A block, if the diagonals of its precision (d,) and of its factor show no lost digits."""
    no_factor = np.isnan(roots).any() and not np.isnan(diagonal).any()
    if no_factor or is_rounding(diagonal, roots):
        raise np.linalg.LinAlgError(TOO_PRECISE)
    return block.copy()
