r"""Gaussian blocks: their arrays, and the forms in which they can be drawn.

A block has labels, along which its entries are independent, and d entries at each
(:mod:`.layout`). With a diagonal prior precision :math:`\Lambda` and children
:math:`y_c \sim N(C_c v + o_c, w_c^{-1})`, at each label

.. math::

    v \mid y \sim N(P^{-1} h, P^{-1}), \quad
    P = \Lambda + \sum_c C_c^T w_c C_c, \quad
    h = \Lambda \mu_0 + \sum_c C_c^T w_c (y_c - o_c).

A form is a way to draw from it: a module with ``applies(block)`` and ``draw(rng, block)``. All have
the same law. Sizes, and the arrays that labels share, decide which is cheapest.

================  ========================================================================
module            its subject
================  ========================================================================
``layout``        axes of a block
``prior``         its prior, and arrays with its labels
``observation``   children as they are read
``evidence``      their likelihood at each label, and its sums over rows
``block``         what is known of a block before it is drawn
``forms``         the table of forms
``diagonal``      form: entries are independent
``windows``       form: no two rows see the same entry
``observations``  form: fewer rows than entries
``banded``        form: each row sees a part of a large block
``few_rows``      form: fewer rows than entries, and a precision matrix at each label
``labels``        form: labels weigh the rows of one design each in its own way
``shared``        form: labels share one precision matrix
``batched``       form: a precision matrix at each label
``groups``        effects of groups, eliminated from a joint block
``common_noise``  rows of outputs that have noise in common
``factor``        draws from a Cholesky factor
``lost_digits``   blocks that are drawn again where a factor has lost digits
================  ========================================================================
"""
