"""Section 6.1 of the paper: from a trained model to sentences."""
