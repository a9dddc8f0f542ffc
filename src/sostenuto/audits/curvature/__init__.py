"""How flat the minimum is: the Hessian of the training loss and the surface around the weights."""
