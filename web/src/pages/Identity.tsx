import { useTranslation } from "react-i18next";
import { TabbedPage } from "../components/TabbedPage";
import { useSession } from "../session";
import { Audit } from "./identity/Audit";
import { Keys } from "./identity/Keys";
import { Tenants } from "./identity/Tenants";
import { Users } from "./identity/Users";

export function Identity() {
  const { t } = useTranslation();
  const { can } = useSession();
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
  return (
    <TabbedPage
      title={read ? t("nav.identity") : t("nav.keys")}
      sub={read ? t("identity.sub") : t("identity.keysSub")}
      tabs={tabs}
    />
  );
}
