import { Tabs } from "antd";
import { useTranslation } from "react-i18next";
import { useSearchParams } from "react-router";
import { PageHead, Panel } from "../components/bits";
import { useSession } from "../session";
import { Audit } from "./identity/Audit";
import { Keys } from "./identity/Keys";
import { Tenants } from "./identity/Tenants";
import { Users } from "./identity/Users";

export function Identity() {
  const { t } = useTranslation();
  const { can } = useSession();
  const [params, setParams] = useSearchParams();
  const read = can("identity.read");
  const tabs = [
    ...(read
      ? [
          { key: "tenants", label: t("identity.tenants"), children: <Tenants /> },
          { key: "users", label: t("identity.users"), children: <Users /> },
        ]
      : []),
    { key: "keys", label: t("nav.keys"), children: <Keys /> },
    ...(can("audit.read") ? [{ key: "audit", label: t("identity.audit"), children: <Audit /> }] : []),
  ];
  const wanted = params.get("tab");
  const tab = tabs.find((x) => x.key === wanted)?.key ?? tabs[0]?.key;
  return (
    <>
      <PageHead
        title={read ? t("nav.identity") : t("nav.keys")}
        sub={read ? t("identity.sub") : t("identity.keysSub")}
      />
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
