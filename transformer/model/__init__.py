"""Sections 3.1 to 3.5 of the paper. Knows no files, no devices and no text."""
