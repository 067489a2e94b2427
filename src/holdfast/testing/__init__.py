"""What users' own tests need: a clock set by hand, scripted chance, policies switched off, a bad network."""

from __future__ import annotations

from holdfast.clock import ManualClock
from holdfast.runtime.guards.switch import no_wait, policies_off
from holdfast.testing.proxy import FaultProxy
from holdfast.testing.rng import ScriptedRng

__all__ = ["FaultProxy", "ManualClock", "ScriptedRng", "no_wait", "policies_off"]
