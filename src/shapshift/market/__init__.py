"""Rounds of payment and their ledger, and what tricks of sellers would gain."""
