// Resources held for tenants, what there is to hold, and the operations that change it.
import { useTranslation } from "react-i18next";
import { TabbedPage } from "../components/TabbedPage";
import { AllocationList } from "./control/AllocationList";
import { Controls } from "./control/Controls";
import { MaintenanceList } from "./control/MaintenanceList";
import { Operations } from "./control/Operations";
import { Regions } from "./control/Regions";
import { Reservations } from "./control/Reservations";

export function Allocations() {
  const { t } = useTranslation();
  const tabs = [
    { key: "allocations", label: t("allocation.allocations"), children: <AllocationList /> },
    { key: "reservations", label: t("calendar.reservations"), children: <Reservations /> },
    { key: "maintenance", label: t("calendar.maintenance"), children: <MaintenanceList /> },
    { key: "regions", label: t("allocation.regions"), children: <Regions /> },
    { key: "nodes", label: t("allocation.controls"), children: <Controls /> },
    { key: "operations", label: t("operation.operations"), children: <Operations /> },
  ];
  return <TabbedPage title={t("nav.allocations")} sub={t("allocation.sub")} tabs={tabs} />;
}
