"""Devices, processes, memory and signals: what the program runs on."""
