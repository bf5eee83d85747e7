"""Reproduction of the paper's experiments, and benchmarks of corrections and of the family of methods.

The paper is Shen, Yang and Liu, "Validation-Induced Shapley Shifts: How Validation Structure Distorts Data Valuation?".
Run ``make reproduce`` in the root of the repository.
"""
