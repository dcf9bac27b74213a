"""What network a model's graph holds: read here once, for laws, moves, predictions and fits.

================  ==============================================================================
module            its subject
================  ==============================================================================
``network``       :class:`.Network`: inputs, latent layers, weights and response; wide networks
``layers``        the law of a layer given those below, and dense ones read as a whole
``activations``   inputs of the next layer: an activation, a decision, or gates
``exchangeable``  units that a model does not tell apart
================  ==============================================================================
"""
