// Availability planning: a system, its plan while it is edited, the methods
// beside each other, the published study, and how available this platform was.
import { Tabs } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { PageHead } from "../components/bits";
import { exampleSystem, type SystemValues } from "../lib/availability";
import { Measured } from "./availability/Measured";
import { Plan } from "./availability/Plan";
import { Study } from "./availability/Study";

export function Availability() {
  const { t } = useTranslation();
  const [tab, setTab] = useState("plan");
  // Here, so that it is kept while another tab is open.
  const [system, setSystem] = useState<SystemValues>(exampleSystem);
  return (
    <>
      <PageHead title={t("nav.availability")} sub={t("availability.sub")} />
      <Tabs
        activeKey={tab}
        onChange={setTab}
        destroyOnHidden
        items={[
          {
            key: "plan",
            label: t("availability.tabs.plan"),
            children: <Plan system={system} onChange={setSystem} />,
          },
          { key: "study", label: t("availability.tabs.study"), children: <Study /> },
          { key: "measured", label: t("availability.tabs.measured"), children: <Measured /> },
        ]}
      />
    </>
  );
}
