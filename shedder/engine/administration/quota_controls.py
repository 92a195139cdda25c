"""Quota controls: changes of tenants' quotas at run time, and the use of each tenant."""

from __future__ import annotations

import pyarrow as pa

from shedder.archive.log.setting_changes import QuotasAltered
from shedder.engine.administration.budget_controls import Budgets
from shedder.engine.administration.controls import Controls
from shedder.engine.apply.setting_records import alter
from shedder.engine.runtime.caller import OPERATOR, Asker
from shedder.engine.tenants.tenant_limits import check_tenant
from shedder.engine.tenants.tenant_report import tenants_table


class TenantQuotas(Controls):
    """Quotas of tenants, and what each tenant takes."""

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
        self._check_open()
        with self._ddl:
            check_tenant(self.core, tenant)
            after = self.core.tenants.changed(tenant, key, value)
            try:
                with self.core.tenants.trying(after):
                    self.sharing.settle(must_fit=tenant if key == "synopsis_bytes" else None)
                    alter(self.core, QuotasAltered(after))
            except BaseException:
                self.sharing.soon()  # As things were.
                raise

    def refresh_tenants(self) -> None:
        """Read the tenants file if it has changed; one that cannot be used is not."""
        if self.core.tenants.refresh_or_keep():
            self.sharing.soon()

    def tenants(self, asker: Asker = OPERATOR) -> pa.Table:
        """SHOW TENANTS: what each takes, and its quotas."""
        self._check_open()
        return tenants_table(
            self.core, Budgets(self.services).allocation(), self.overload.cpu_ns_per_s(), asker
        )
