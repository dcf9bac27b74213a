"""What the builders of models are put together from.

================  =======================================================================
module            its subject
================  =======================================================================
``scaffold``      what every builder does first: data, dimensions, the model around
``block``         what every block does first: inputs, names, the model around
``context``       the model to add to, its names and dimensions, and the call of its builder
``data``          what a builder accepts as inputs and targets
``layers``        layers with their priors, and settings given once or per layer
``convolutions``  convolutions and pooling of images, with their sizes
``noise``         variances of noise, known or learnt, once or by kind and layer
``groups``        groups of parameters of a hierarchical network, by name
``shrinkage``     priors of a bow-tie network's weights
``readout``       readout weights: integrated out, and given hidden layers and targets
``likelihoods``   distributions of the targets
================  =======================================================================
"""
