"""The scenarios of the load test."""

from dataclasses import dataclass

RATES = (1_000, 4_000, 50_000, 200_000, 500_000, 0)
# Maximum calls a second of one thread.
ONE_THREAD = 200_000


@dataclass(frozen=True)
class Scenario:
    """Calls a second (0: unlimited), the part of the allocations that is freed, and whether a
    report is printed every two seconds."""

    rate: float
    free_ratio: float
    prints: bool

    @property
    def threads(self):
        """
        >>> Scenario(4000, 1, True).threads, Scenario(0, 1, True).threads
        (1, 2)
        """
        return 1 if 0 < self.rate <= ONE_THREAD else 2

    def asked(self):
        """
        >>> Scenario(4000, 1, True).asked(), Scenario(0, 1, True).asked()
        ('4,000', 'no limit')
        """
        return f"{self.rate:,.0f}" if self.rate else "no limit"

    def name(self):
        """
        >>> Scenario(200_000, 0, False).name()
        '200,000/s, nothing freed, no reports'
        """
        rate = f"{self.asked()}/s" if self.rate else "as fast as it goes"
        freed = "all freed" if self.free_ratio == 1 else "nothing freed"
        return f"{rate}, {freed}, {'reports' if self.prints else 'no reports'}"

    def file_name(self):
        """
        >>> Scenario(200_000, 0, False).file_name(), Scenario(0, 1, True).file_name()
        ('200000-live', 'unlimited-freed-reports')
        """
        parts = [f"{self.rate:.0f}" if self.rate else "unlimited"]
        parts.append("freed" if self.free_ratio == 1 else "live")
        return "-".join(parts + ["reports"] * self.prints)


def scenarios(rates=None):
    """All of them, or those at `rates`.

    >>> len(list(scenarios())), len(list(scenarios([1000])))
    (24, 4)
    """
    for rate in rates or RATES:
        for free_ratio in (1, 0):
            for prints in (True, False):
                yield Scenario(rate, free_ratio, prints)
