"""Section 5 of the paper: loss, optimizer, update, devices, loop, validation, reports."""
