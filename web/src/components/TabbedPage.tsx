// A page of tabs, of which the address says which one is open.
import { Tabs } from "antd";
import type { ReactNode } from "react";
import { useSearchParams } from "react-router";
import { PageHead, Panel } from "./bits";

/** The first tab is open if the address names none of them. */
export function TabbedPage({
  title,
  sub,
  tabs,
}: {
  title: string;
  sub: string;
  tabs: { key: string; label: string; children: ReactNode }[];
}) {
  const [params, setParams] = useSearchParams();
  const open = tabs.find((x) => x.key === params.get("tab")) ?? tabs[0];
  return (
    <>
      <PageHead title={title} sub={sub} />
      <Panel flush className="yh-tabs">
        <Tabs
          activeKey={open?.key ?? ""}
          onChange={(key) => setParams({ tab: key }, { replace: true })}
          items={tabs}
          destroyOnHidden
        />
      </Panel>
    </>
  );
}
