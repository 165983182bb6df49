import { ApiOutlined, LinkOutlined } from "@ant-design/icons";
import { Button, Table, type TableColumnsType } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useNavigate, useSearchParams } from "react-router";
import { Loaded, Nothing, PageHead, Panel, PluginTag } from "../components/bits";
import { Parts } from "../components/Parts";
import { RegisterPlugin } from "../components/RegisterPlugin";
import type { Plugin } from "../gen/yunhe/adapters/v1/adapters_pb";
import { formatCount, NONE } from "../lib/format";
import { sourceName } from "../lib/plugins";
import { usePlugins } from "../queries";
import { useSession } from "../session";

export function Plugins() {
  const { t } = useTranslation();
  const { can } = useSession();
  const navigate = useNavigate();
  const plugins = usePlugins();
  const [params] = useSearchParams();
  const [registering, setRegistering] = useState(params.has("register") && can("adapters.write"));
  return (
    <>
      <PageHead
        title={t("nav.plugins")}
        sub={t("plugin.sub")}
        extra={
          can("adapters.write") && (
            <div className="yh-row">
              <Button icon={<ApiOutlined aria-hidden />} onClick={() => setRegistering(true)}>
                {t("plugin.register")}
              </Button>
              <Link to="/connect">
                <Button type="primary" icon={<LinkOutlined aria-hidden />}>
                  {t("centers.connect")}
                </Button>
              </Link>
            </div>
          )
        }
      />
      <Panel flush>
        <Loaded query={plugins} rows={6}>
          {(list) => <PluginTable plugins={list} />}
        </Loaded>
      </Panel>
      <RegisterPlugin
        open={registering}
        onClose={() => setRegistering(false)}
        onDone={(name) => {
          setRegistering(false);
          void navigate(`/plugins/${encodeURIComponent(name)}`);
        }}
      />
    </>
  );
}

function PluginTable({ plugins }: { plugins: Plugin[] }) {
  const { t } = useTranslation();
  const columns: TableColumnsType<Plugin> = [
    {
      title: t("plugin.name"),
      key: "name",
      width: 200,
      ellipsis: true,
      render: (_, p) => (
        <Link to={`/plugins/${encodeURIComponent(p.name)}`}>
          <b>{p.name}</b>
        </Link>
      ),
    },
    { title: t("plugin.state"), key: "state", width: 130, render: (_, p) => <PluginTag state={p.state} /> },
    {
      title: t("plugin.instances"),
      key: "instances",
      width: 100,
      align: "right",
      render: (_, p) => <span className="yh-num">{formatCount(p.instances)}</span>,
    },
    { title: t("plugin.version"), key: "version", width: 140, ellipsis: true, render: (_, p) => p.version || NONE },
    { title: t("plugin.parts"), key: "parts", width: 240, render: (_, p) => <Parts parts={p.parts} /> },
    {
      title: t("plugin.source"),
      key: "source",
      width: 130,
      render: (_, p) => t(`plugin.sources.${sourceName(p.source)}`),
    },
  ];
  return (
    <Table
      size="small"
      rowKey="name"
      columns={columns}
      dataSource={plugins}
      tableLayout="fixed"
      scroll={{ x: 900 }}
      pagination={plugins.length > 100 ? { pageSize: 100, showSizeChanger: false, size: "small" } : false}
      locale={{ emptyText: <Nothing text={t("plugin.none")} /> }}
    />
  );
}
