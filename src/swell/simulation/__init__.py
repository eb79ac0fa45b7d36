"""The simulated world: one heap of events, virtual time, one seed.

simulation = Simulation(seed=7)
process = simulation.add("n1", "site-1", factory)     # factory(world) -> node
process.start()
simulation.run_for(60.0)
"""

from swell.simulation.disk import SimDisk
from swell.simulation.link import SimLink
from swell.simulation.network import Network, Rule
from swell.simulation.process import Process
from swell.simulation.simulation import Simulation, SimulationFailure
from swell.simulation.swarm import Plan, Swarm
from swell.simulation.trace import Kind, Trace
from swell.simulation.world import SimTimer, SimWorld

__all__ = [
    "Kind",
    "Network",
    "Plan",
    "Process",
    "Rule",
    "SimDisk",
    "SimLink",
    "SimTimer",
    "SimWorld",
    "Simulation",
    "SimulationFailure",
    "Swarm",
    "Trace",
]
