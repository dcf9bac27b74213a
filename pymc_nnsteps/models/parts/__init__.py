"""What the builders of models are put together from.

================  =======================================================================
module            its subject
================  =======================================================================
``scaffold``      what builders and blocks do first: data, dimensions, the model around
``context``       the model to add to, its names and dimensions, and the call of its builder
``data``          what a builder accepts as inputs and targets
``layers``        layers with their priors and noise, and settings given once or per layer
``convolutions``  convolutions and pooling of images, with their sizes
``groups``        groups of parameters of a hierarchical network, by name
``shrinkage``     priors of a bow-tie network's weights
``readout``       readout weights: integrated out, and given hidden layers and targets
``likelihoods``   distributions of the targets
================  =======================================================================
"""
