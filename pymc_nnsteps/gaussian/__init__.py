r"""Gaussian blocks: their arrays, and the forms in which they can be drawn.

A block has labels, along which its entries are independent, and d entries at each
(:mod:`.layout`). Sizes, and the arrays that labels share, decide which form is cheapest.

================  ========================================================================
module            its subject
================  ========================================================================
``layout``        axes of a block, and numbers that sum to zero
``observation``   children as they are read, their likelihood at each label, sums over its rows
``forms``         what is known of a block, and forms in which it is drawn
``groups``        effects of groups, eliminated from a joint block, and noise in common
``factor``        draws from a Cholesky factor, also given sums, and again where it lost digits
``labels``        loops of blocks with a precision matrix per label, or drawn by reflections
``bands``         loops of blocks with a banded or tridiagonal precision matrix, or windows
================  ========================================================================
"""
