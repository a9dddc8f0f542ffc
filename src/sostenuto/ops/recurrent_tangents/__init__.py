"""The recurrent NTK of all pairs with its derivatives by parameters, in one pass: one layer of rectifiers."""
