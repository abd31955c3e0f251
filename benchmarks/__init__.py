"""Measurements of this project, most of them side by side with another system."""
