"""Value again and again on perturbed validation sets, and say how far the values move."""

from shapshift.audit._result import ShiftAudit
from shapshift.audit._run import ShiftStream, audit_shift
from shapshift.audit._thresholds import Thresholds

__all__ = ["ShiftAudit", "ShiftStream", "Thresholds", "audit_shift"]
