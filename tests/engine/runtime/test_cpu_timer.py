"""A CPU timer tells what parts take, without what the thread waits for."""

from __future__ import annotations

from shedder.engine.runtime.cpu_timer import CpuTimer


class Clock:
    def __init__(self):
        self.ns = 0

    def __call__(self):
        return self.ns


def test_each_part_has_its_laps_share_of_the_cpu_time():
    wall, cpu = Clock(), Clock()
    watch = CpuTimer(3, wall, cpu)
    watch.start()
    for part, ns in ((0, 100), (1, 200), (2, 0), (1, 100)):
        wall.ns += ns
        watch.lap(part, 10)
    cpu.ns += 100  # Of 400: others had the core.
    watch.stop(10)
    assert (watch.ns, watch.tuples, watch.runs) == ([25, 75, 0], 10, 1)
    watch.start()
    wall.ns += 50
    cpu.ns += 50
    watch.lap(2, 10)
    watch.stop(30)
    assert (watch.ns, watch.tuples, watch.runs) == ([25, 75, 50], 40, 2)


def test_what_is_between_batches_is_nobodys():
    wall, cpu = Clock(), Clock()
    watch = CpuTimer(1, wall, cpu)
    wall.ns = cpu.ns = 1_000
    watch.start()
    watch.stop(5)  # Nothing has passed.
    assert (watch.ns, watch.tuples) == ([0], 5)


def test_a_batch_that_failed_in_the_middle_is_not_counted():
    wall, cpu = Clock(), Clock()
    watch = CpuTimer(1, wall, cpu)
    watch.start()
    wall.ns = cpu.ns = 700
    watch.lap(0, 1)
    watch.start()
    wall.ns = cpu.ns = 800
    watch.lap(0, 1)
    watch.stop(1)
    assert watch.ns == [100]
