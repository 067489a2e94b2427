"""A retry budget that several policies may share."""

from __future__ import annotations

import threading

from holdfast.policy.budget import BudgetConfig, earned, spent


class RetryBudget:
    """Keeps retries to a set share of the successes, over every policy that holds this object.

    ratio [0.1]: what a success earns, as a share of a retry. cap [10]: how many retries can be saved up; it starts
    full. Over any stretch there are at most cap + ratio × successes retries, whatever the policies say.
    """

    def __init__(self, ratio: float = 0.1, *, cap: float = 10.0) -> None:
        self.config = BudgetConfig(ratio=ratio, cap=cap)
        self._lock = threading.Lock()
        self._tokens = cap

    @property
    def tokens(self) -> float:
        """Retries that could be made now."""
        return self._tokens

    def __repr__(self) -> str:
        return f"<RetryBudget {self._tokens:.3g} of {self.config.cap:g}>"

    def earn(self) -> None:
        """A call has succeeded."""
        if self._tokens < self.config.cap:
            with self._lock:
                self._tokens = earned(self.config, self._tokens)

    def spend(self) -> bool:
        """Ask for one retry; False when the budget does not have it."""
        with self._lock:
            left = spent(self._tokens)
            if left is None:
                return False
            self._tokens = left
            return True
