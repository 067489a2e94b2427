"""What users' own tests need: a clock set by hand, chance that follows a script, policies switched off."""

from __future__ import annotations

from holdfast.clock import ManualClock
from holdfast.runtime.guards.switch import no_wait, policies_off
from holdfast.testing.rng import ScriptedRng

__all__ = ["ManualClock", "ScriptedRng", "no_wait", "policies_off"]
