"""Whether states stay where they should: bounds on how far they go, and what makes them leave; one method per file."""
