"""Models behind HTTP: the page, its API, and how requests are batched, limited and refused."""
