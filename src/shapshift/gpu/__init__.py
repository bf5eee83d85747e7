"""Valuing on a graphics card, with torch and Triton. Nothing of it is loaded before it is asked for."""
