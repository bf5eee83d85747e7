"""The experiments of the paper, run again, and benchmarks of corrections and of the family of methods.

The paper is Shen, Yang and Liu, "Validation-Induced Shapley Shifts: How Validation Structure Distorts Data Valuation?".
``make reproduce`` runs them from the root of the repository.
"""
