"""Controls of tenants: their quotas while the engine runs, and the use of each tenant."""

from __future__ import annotations

import threading

import pyarrow as pa

from shedder.archive.log.setting_changes import QuotasAltered
from shedder.engine.allocation.rebalancer import Rebalancer
from shedder.engine.apply.setting_records import alter
from shedder.engine.controls.budget_controls import BudgetControls
from shedder.engine.engine_state import EngineState
from shedder.engine.load_shedding.controller_loop import Overload
from shedder.engine.runtime.caller import OPERATOR, Caller
from shedder.engine.runtime.lifetime import Lifetime
from shedder.engine.tenants.tenant_limits import check_tenant
from shedder.engine.tenants.tenant_report import tenants_table


class QuotaControls:
    """Quotas of tenants, and what each tenant takes."""

    def __init__(
        self,
        core: EngineState,
        lifetime: Lifetime,
        ddl: threading.RLock,
        sharing: Rebalancer,
        budgets: BudgetControls,
        overload: Overload,
    ) -> None:
        self._core = core
        self._lifetime = lifetime
        self._ddl = ddl
        self._sharing = sharing
        self._budgets = budgets
        self._overload = overload

    def set_quota(self, tenant: str, key: str, value: str) -> None:
        """Set one of a tenant's quotas, durably, whatever the tenants file says.

        What it holds already stays: queries stand, and only new ones are refused.

        Args:
          tenant: one that has a stream or a quota. key: of `Quota`.
          value: a number, a size, "none" for no limit, "default" for what the file says.

        Raises:
          UnknownTenant. BadSetting: it cannot be that. BudgetExceeded: its standing queries cannot
          be made as small. DiskFull, StorageFailed: nothing has changed.
        """
        self._lifetime.check_open()
        with self._ddl:
            check_tenant(self._core, tenant)
            after = self._core.tenants.changed(tenant, key, value)
            try:
                with self._core.tenants.trying(after):
                    self._sharing.settle(must_fit=tenant if key == "synopsis_bytes" else None)
                    alter(self._core, QuotasAltered(after))
            except BaseException:
                self._sharing.soon()  # As things were.
                raise

    def refresh_tenants(self) -> None:
        """Read the tenants file if it has changed; one that cannot be used is not."""
        if self._core.tenants.refresh_or_keep():
            self._sharing.soon()

    def tenants(self, caller: Caller = OPERATOR) -> pa.Table:
        """SHOW TENANTS: what each takes, and its quotas."""
        self._lifetime.check_open()
        return tenants_table(
            self._core, self._budgets.allocation(), self._overload.cpu_ns_per_s(), caller
        )
