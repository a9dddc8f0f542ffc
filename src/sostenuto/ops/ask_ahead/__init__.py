"""Memory that is asked for while a product computes, for the compiled scans."""
