// Tags: the library, the objects that carry them, the rules that set them, and what was changed.
import { Tabs } from "antd";
import { useTranslation } from "react-i18next";
import { useSearchParams } from "react-router";
import { PageHead, Panel } from "../components/bits";
import { History } from "./tags/History";
import { Library } from "./tags/Library";
import { Objects } from "./tags/Objects";
import { Rules } from "./tags/Rules";

export function Tags() {
  const { t } = useTranslation();
  const [params, setParams] = useSearchParams();
  const tabs = [
    { key: "library", label: t("tag.library"), children: <Library /> },
    { key: "objects", label: t("tag.objects"), children: <Objects /> },
    { key: "rules", label: t("tag.rules"), children: <Rules /> },
    { key: "history", label: t("tag.history"), children: <History /> },
  ];
  const tab = tabs.find((x) => x.key === params.get("tab"))?.key ?? "library";
  return (
    <>
      <PageHead title={t("nav.tags")} sub={t("tag.sub")} />
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
