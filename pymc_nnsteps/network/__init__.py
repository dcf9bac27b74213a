"""What network a model's graph holds: read here once, for laws, moves, predictions and fits.

===============  ==================================================================
module           its subject
===============  ==================================================================
``network``      :class:`.Network`: inputs, latent layers, weights and response
``layers``       one layer: the law of a random variable, given the layers below
``activations``  what the next layer sees: an activation, a decision, or gates
``dense``        layers ``x @ W.T + b`` one after another, read as a whole
``functional``   networks whose hidden layers are functions of their inputs; wide ones
===============  ==================================================================
"""
