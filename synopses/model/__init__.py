"""Types common to all synopses: estimates, profiles, errors and the binary header.

`Estimate` is a value with its interval and bound. `Profile` declares a synopsis's sizes,
precision curve, cost and behaviour under thinning.

Imports no other package of `synopses`.
"""
