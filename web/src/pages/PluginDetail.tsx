import { DownOutlined, LinkOutlined, ReloadOutlined } from "@ant-design/icons";
import { Button, Descriptions, Dropdown, Input, type MenuProps, Select, Table, type TableColumnsType } from "antd";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useNavigate, useParams } from "react-router";
import { Copyable, Loaded, Moment, Nothing, PageHead, Panel, PluginTag } from "../components/bits";
import { Parts } from "../components/Parts";
import { RegisterPlugin } from "../components/RegisterPlugin";
import { usePluginActions } from "../components/usePluginActions";
import { type Instance, type Plugin, PluginSource } from "../gen/yunhe/adapters/v1/adapters_pb";
import { fieldHelp, fieldTitle } from "../i18n/schemadocs";
import { formatCount, NONE } from "../lib/format";
import { GATEWAY, INSTANCE_STATES, instanceKey, isConnectable, sourceName } from "../lib/plugins";
import { type Field, parseSchema } from "../lib/schema";
import { usePrefs } from "../prefs";
import { useCenters, usePlugin } from "../queries";
import { useSession } from "../session";

export function PluginDetail() {
  const { t } = useTranslation();
  const { name = "" } = useParams();
  const { can } = useSession();
  const plugin = usePlugin(name);
  const p = plugin.data;
  return (
    <>
      <PageHead
        title={name}
        back={{ to: "/plugins", label: t("nav.plugins") }}
        after={p && <PluginTag state={p.state} />}
        extra={p && can("adapters.write") && <Actions plugin={p} />}
      />
      <Loaded query={plugin} rows={8}>
        {(data) => (
          <>
            <FactsPanel plugin={data} />
            <Instances plugin={data} />
            {data.configSchema && isConnectable(data) && <SchemaPanel text={data.configSchema} />}
          </>
        )}
      </Loaded>
    </>
  );
}

function Actions({ plugin: p }: { plugin: Plugin }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const actions = usePluginActions();
  const [changing, setChanging] = useState(false);
  const registered = p.source === PluginSource.REGISTERED;
  return (
    <div className="yh-row">
      {p.name !== GATEWAY && (
        <Button icon={<ReloadOutlined aria-hidden />} onClick={() => actions.restart(p.name)} data-testid="restart">
          {t("plugin.restart")}
        </Button>
      )}
      {registered && (
        <>
          <Button
            danger
            onClick={() => actions.removePlugin(p.name, () => void navigate("/plugins"))}
            data-testid="remove"
          >
            {t("common.remove")}
          </Button>
          <Button type="primary" onClick={() => setChanging(true)}>
            {t("plugin.addresses")}
          </Button>
          <RegisterPlugin
            open={changing}
            plugin={p}
            onClose={() => setChanging(false)}
            onDone={() => setChanging(false)}
          />
        </>
      )}
      {!registered && (
        <Link to={`/connect?plugin=${encodeURIComponent(p.name)}`}>
          <Button type="primary" icon={<LinkOutlined aria-hidden />}>
            {t("centers.connect")}
          </Button>
        </Link>
      )}
    </div>
  );
}

function FactsPanel({ plugin: p }: { plugin: Plugin }) {
  const { t } = useTranslation();
  return (
    <Panel title={t("center.facts")}>
      <Descriptions
        size="small"
        column={{ xs: 1, md: 2, xl: 4 }}
        items={[
          { key: "version", label: t("plugin.version"), children: p.version || NONE },
          { key: "parts", label: t("plugin.parts"), children: <Parts parts={p.parts} /> },
          { key: "source", label: t("plugin.source"), children: t(`plugin.sources.${sourceName(p.source)}`) },
          { key: "instances", label: t("plugin.instances"), children: formatCount(p.instances) },
        ]}
      />
    </Panel>
  );
}

function Instances({ plugin: p }: { plugin: Plugin }) {
  const { t } = useTranslation();
  const { can } = useSession();
  const { data: centers } = useCenters();
  const [search, setSearch] = useState("");
  const [state, setState] = useState<string>();
  const known = useMemo(() => new Map((centers ?? []).map((c) => [c.aiCenterId, c.name])), [centers]);
  const shown = useMemo(() => {
    const wanted = search.trim().toLowerCase();
    return p.list.filter(
      (i) =>
        (!state || i.state === state) &&
        [i.aiCenterId, known.get(i.aiCenterId) ?? "", i.endpoint, i.message].some((s) =>
          s.toLowerCase().includes(wanted),
        ),
    );
  }, [p.list, known, search, state]);
  const registered = p.source === PluginSource.REGISTERED;
  const columns: TableColumnsType<Instance> = [
    {
      title: t("plugin.center"),
      key: "center",
      width: 190,
      ellipsis: true,
      render: (_, i) => <CenterOf id={i.aiCenterId} name={known.get(i.aiCenterId)} />,
    },
    { title: t("plugin.state"), key: "state", width: 120, render: (_, i) => <PluginTag state={i.state} /> },
    {
      title: t("plugin.message"),
      key: "message",
      width: 320,
      render: (_, i) =>
        i.message ? <span className="yh-wrap">{i.message}</span> : <span className="yh-none">{NONE}</span>,
    },
    { title: t("plugin.since"), key: "since", width: 124, render: (_, i) => <Moment at={i.changedAt} /> },
    { title: t("plugin.version"), key: "version", width: 110, ellipsis: true, render: (_, i) => i.version || NONE },
  ];
  if (p.list.some((i) => i.endpoint !== "")) {
    columns.push({
      title: t("plugin.endpoint"),
      key: "endpoint",
      width: 220,
      ellipsis: true,
      render: (_, i) => (i.endpoint ? <code>{i.endpoint}</code> : NONE),
    });
  }
  if (can("adapters.write") && !registered) {
    columns.push({
      title: t("plugin.actions"),
      key: "actions",
      width: 100,
      align: "right",
      render: (_, i) => i.endpoint === "" && i.aiCenterId !== "" && <InstanceMenu instance={i} />,
    });
  }
  return (
    <Panel
      title={t("plugin.instances")}
      flush
      extra={
        p.list.length > 1 && (
          <div className="yh-row">
            <Select
              allowClear
              className="yh-w-140"
              placeholder={t("jobs.anyState")}
              aria-label={t("plugin.state")}
              value={state}
              onChange={setState}
              options={INSTANCE_STATES.map((s) => ({ value: s, label: t(`plugin.states.${s}`) }))}
            />
            <Input.Search
              allowClear
              className="yh-w-240"
              placeholder={t("plugin.search")}
              aria-label={t("plugin.search")}
              onChange={(e) => setSearch(e.target.value)}
            />
          </div>
        )
      }
    >
      <Table
        size="small"
        rowKey={instanceKey}
        columns={columns}
        dataSource={shown}
        tableLayout="fixed"
        scroll={{ x: 980 }}
        pagination={shown.length > 50 ? { pageSize: 50, showSizeChanger: false, size: "small" } : false}
        locale={{
          emptyText: (
            <Nothing text={t(p.list.length > 0 ? "plugin.noMatch" : "plugin.noInstances")}>
              {p.list.length === 0 && isConnectable(p) && can("adapters.write") && (
                <Link to={`/connect?plugin=${encodeURIComponent(p.name)}`}>{t("centers.connect")}</Link>
              )}
            </Nothing>
          ),
        }}
      />
    </Panel>
  );
}

// A center that was never reached has no page yet.
function CenterOf({ id, name }: { id: string; name: string | undefined }) {
  if (id === "") return <span className="yh-none">{NONE}</span>;
  if (name === undefined) return <code>{id}</code>;
  return (
    <Link to={`/centers/${encodeURIComponent(id)}`} className="yh-job-link">
      <b>{name || id}</b>
      <small>{id}</small>
    </Link>
  );
}

function InstanceMenu({ instance: i }: { instance: Instance }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const actions = usePluginActions();
  const items: MenuProps["items"] = [];
  if (i.plugin !== GATEWAY) {
    items.push(
      { key: "change", label: t("plugin.change") },
      { key: "enabled", label: t(i.enabled ? "plugin.disable" : "plugin.enable") },
      { type: "divider" },
    );
  }
  items.push({ key: "disconnect", label: t("plugin.disconnect"), danger: true });
  return (
    <Dropdown
      trigger={["click"]}
      menu={{
        items,
        onClick: ({ key }) => {
          if (key === "change") {
            void navigate(`/connect?plugin=${encodeURIComponent(i.plugin)}&center=${encodeURIComponent(i.aiCenterId)}`);
          }
          if (key === "enabled") actions.setEnabled(i, !i.enabled);
          if (key === "disconnect") actions.disconnect(i);
        },
      }}
    >
      <Button
        size="small"
        type="text"
        icon={<DownOutlined aria-hidden />}
        iconPlacement="end"
        aria-label={`${t("plugin.actions")}: ${i.aiCenterId}`}
      >
        {t("plugin.actions")}
      </Button>
    </Dropdown>
  );
}

/** What a configuration may say, for those who write one. */
function SchemaPanel({ text }: { text: string }) {
  const { t } = useTranslation();
  const { language } = usePrefs();
  const fields = useMemo(() => readSchema(text), [text]);
  if (!fields) return null;
  const columns: TableColumnsType<Field> = [
    { title: t("plugin.field"), key: "key", width: 210, render: (_, f) => <code>{f.key}</code> },
    {
      title: t("plugin.meaning"),
      key: "help",
      render: (_, f) => (
        <>
          {fieldTitle(f, language)}
          {f.help && <span className="yh-muted"> · {fieldHelp(f, language)}</span>}
        </>
      ),
    },
    { title: t("plugin.kind"), key: "kind", width: 150, render: (_, f) => t(`plugin.kinds.${f.kind}`) },
    {
      title: t("form.required"),
      key: "required",
      width: 90,
      render: (_, f) => t(f.required ? "common.yes" : "common.no"),
    },
  ];
  return (
    <Panel
      title={t("plugin.schema")}
      flush
      extra={
        <Copyable text={text}>
          <span className="yh-muted">JSON Schema</span>
        </Copyable>
      }
    >
      <Table
        size="small"
        rowKey="key"
        columns={columns}
        dataSource={fields}
        tableLayout="fixed"
        scroll={{ x: 760 }}
        pagination={false}
        locale={{ emptyText: <Nothing text={t("plugin.noFields")} /> }}
      />
    </Panel>
  );
}

// A schema that cannot be read is the plug-in's matter; the form then asks for JSON.
function readSchema(text: string): Field[] | undefined {
  try {
    return parseSchema(text).fields;
  } catch {
    return undefined;
  }
}
