// What placement knows of the network: paths with where each fact is from, and where users are.
import { Tabs } from "antd";
import { useTranslation } from "react-i18next";
import { useSearchParams } from "react-router";
import { PageHead, Panel } from "../components/bits";
import { Origins } from "./network/Origins";
import { Paths } from "./network/Paths";

export function Network() {
  const { t } = useTranslation();
  const [params, setParams] = useSearchParams();
  const tabs = [
    { key: "paths", label: t("network.paths"), children: <Paths /> },
    { key: "origins", label: t("network.origins"), children: <Origins /> },
  ];
  const tab = tabs.find((x) => x.key === params.get("tab"))?.key ?? "paths";
  return (
    <>
      <PageHead title={t("nav.network")} sub={t("network.sub")} />
      <Panel flush className="yh-tabs">
        <Tabs
          activeKey={tab}
          onChange={(key) => setParams({ tab: key }, { replace: true })}
          items={tabs}
          destroyOnHidden
        />
      </Panel>
    </>
  );
}
