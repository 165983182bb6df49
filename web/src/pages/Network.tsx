// What placement knows of the network: paths with where each fact is from, and where users are.
import { useTranslation } from "react-i18next";
import { TabbedPage } from "../components/TabbedPage";
import { Origins } from "./network/Origins";
import { Paths } from "./network/Paths";

export function Network() {
  const { t } = useTranslation();
  const tabs = [
    { key: "paths", label: t("network.paths"), children: <Paths /> },
    { key: "origins", label: t("network.origins"), children: <Origins /> },
  ];
  return <TabbedPage title={t("nav.network")} sub={t("network.sub")} tabs={tabs} />;
}
