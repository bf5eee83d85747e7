"""Repeat a valuation on perturbed validation sets, and measure how far the values move."""

from shapshift.audit._points import PointInfluence, point_influence
from shapshift.audit._result import ShiftAudit, Thresholds
from shapshift.audit._run import ShiftStream, audit_shift

__all__ = ["PointInfluence", "ShiftAudit", "ShiftStream", "Thresholds", "audit_shift", "point_influence"]
