// What placement knows of the network: paths with where each fact is from, and where users are;
// and the equipment of centers with the rules of its alarms.
import { useTranslation } from "react-i18next";
import { TabbedPage } from "../components/TabbedPage";
import { Equipment, EquipmentRules } from "./network/Equipment";
import { Origins } from "./network/Origins";
import { Paths } from "./network/Paths";

export function Network() {
  const { t } = useTranslation();
  const tabs = [
    { key: "paths", label: t("network.paths"), children: <Paths /> },
    { key: "origins", label: t("network.origins"), children: <Origins /> },
    { key: "equipment", label: t("network.equipment.title"), children: <Equipment /> },
    { key: "rules", label: t("network.equipment.rules"), children: <EquipmentRules /> },
  ];
  return <TabbedPage title={t("nav.network")} sub={t("network.sub")} tabs={tabs} />;
}
