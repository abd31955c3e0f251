"""What a model and a run look like: attention maps and plots, for notebooks and pages alike."""
