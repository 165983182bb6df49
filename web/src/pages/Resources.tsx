// What is registered: platforms, clouds, devices, networks, stores, beside the
// centers and nodes that joined. Read page by page, filtered by the platform.
import { DownloadOutlined, PlusOutlined, UploadOutlined } from "@ant-design/icons";
import { Button, Drawer, Form, Input, Select, Table, type TableColumnsType } from "antd";
import { useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useNavigate, useSearchParams } from "react-router";
import { call } from "../api";
import { Labels, Moment, Nothing, PageHead, Panel } from "../components/bits";
import { PagedRows, usePaged } from "../components/Pager";
import type { Resource } from "../gen/yunhe/registry/v1/resource_pb";
import { formatCount, NONE } from "../lib/format";
import { type ResourceFilter, resourceFilterOf, resourcePath } from "../lib/registry";
import { resourceStateOf, STATE_NAMES } from "../lib/resourcefile";
import { useCenters } from "../queries";
import { useClients, useSession } from "../session";
import { ExportDrawer } from "./resources/Export";
import { ImportDrawer } from "./resources/Import";
import { ResourceForm } from "./resources/ResourceForm";
import { ResourceStateTag, useResourceTypes, useTypeTitle } from "./resources/shared";

const PAGE = 50;
const EVERY_MS = 10_000;

export function Resources() {
  const { t } = useTranslation();
  const { can } = useSession();
  const navigate = useNavigate();
  const [params, setParams] = useSearchParams();
  const filter = useMemo(() => resourceFilterOf(params), [params]);
  const [open, setOpen] = useState<"create" | "import" | "export">();
  const close = () => setOpen(undefined);
  const change = (values: Partial<Record<string, string | string[]>>) =>
    setParams(
      (now) => {
        const next = new URLSearchParams(now);
        for (const [name, value] of Object.entries(values)) {
          next.delete(name);
          for (const v of [value ?? ""].flat()) if (v) next.append(name, v);
        }
        return next;
      },
      { replace: true, preventScrollReset: true },
    );
  const write = can("registry.write");
  return (
    <>
      <PageHead
        title={t("nav.registry")}
        sub={t("registry.sub")}
        extra={
          <div className="yh-row">
            <Button icon={<DownloadOutlined aria-hidden />} onClick={() => setOpen("export")} data-testid="export">
              {t("registry.export")}
            </Button>
            {write && (
              <>
                <Button icon={<UploadOutlined aria-hidden />} onClick={() => setOpen("import")} data-testid="import">
                  {t("registry.import")}
                </Button>
                <Button type="primary" icon={<PlusOutlined aria-hidden />} onClick={() => setOpen("create")}>
                  {t("registry.create")}
                </Button>
              </>
            )}
          </div>
        }
      />
      <Panel flush>
        <Filters filter={filter} onChange={change} />
        <List filter={filter} />
      </Panel>
      <Drawer open={open === "create"} onClose={close} size={640} title={t("registry.create")} destroyOnHidden>
        <ResourceForm
          parentId={filter.parentId}
          type={filter.type}
          onDone={(id) => {
            close();
            void navigate(resourcePath(id));
          }}
        />
      </Drawer>
      <Drawer open={open === "import"} onClose={close} size={760} title={t("registry.importTitle")} destroyOnHidden>
        <ImportDrawer />
      </Drawer>
      <Drawer open={open === "export"} onClose={close} size={480} title={t("registry.exportTitle")} destroyOnHidden>
        <ExportDrawer filter={filter} />
      </Drawer>
    </>
  );
}

function Filters(props: {
  filter: ResourceFilter;
  onChange: (values: Partial<Record<string, string | string[]>>) => void;
}) {
  const { t } = useTranslation();
  const { filter, onChange } = props;
  const types = useResourceTypes();
  const title = useTypeTitle();
  const centers = useCenters();
  const filtered = Object.values(filter).some((v) => v.length > 0);
  return (
    <Form layout="inline" className="yh-filters" role="search" aria-label={t("jobs.filters")}>
      <Select
        allowClear
        className="yh-w-180"
        placeholder={t("registry.anyType")}
        aria-label={t("registry.type")}
        value={filter.type || undefined}
        onChange={(type?: string) => onChange({ type: type ?? "" })}
        options={(types.data ?? []).map((x) => ({ value: x.type, label: title(x.type) }))}
      />
      <Select
        allowClear
        className="yh-w-140"
        placeholder={t("jobs.anyState")}
        aria-label={t("registry.state")}
        value={filter.state || undefined}
        onChange={(state?: string) => onChange({ state: state ?? "" })}
        options={STATE_NAMES.map((s) => ({ value: s, label: t(`registry.states.${s}`) }))}
      />
      <Select
        allowClear
        showSearch={{ optionFilterProp: "label" }}
        className="yh-w-200"
        placeholder={t("jobs.anyCenter")}
        aria-label={t("center.name")}
        value={filter.centerId || undefined}
        onChange={(center?: string) => onChange({ center: center ?? "" })}
        options={(centers.data ?? []).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
      />
      <Search value={filter.region} label={t("registry.region")} onSearch={(region) => onChange({ region })} />
      <Search value={filter.parentId} label={t("registry.parentId")} onSearch={(parent) => onChange({ parent })} />
      <Select
        mode="tags"
        open={false}
        suffixIcon={null}
        allowClear
        maxCount={8}
        className="yh-label-filter"
        placeholder={t("node.labelFilter")}
        aria-label={t("node.labelFilter")}
        value={filter.labels}
        tokenSeparators={[",", " "]}
        onChange={(label: string[]) => onChange({ label })}
      />
      <Select
        mode="tags"
        open={false}
        suffixIcon={null}
        allowClear
        maxCount={8}
        className="yh-label-filter"
        placeholder={t("registry.attributeFilter")}
        aria-label={t("registry.attributeFilter")}
        value={filter.attributes}
        tokenSeparators={[","]}
        onChange={(attribute: string[]) => onChange({ attribute })}
      />
      {filtered && (
        <Button
          type="link"
          onClick={() =>
            onChange({ type: "", state: "", center: "", region: "", parent: "", label: [], attribute: [] })
          }
        >
          {t("common.clear")}
        </Button>
      )}
    </Form>
  );
}

// Filters when Enter is pressed or the field is left, not with each letter.
function Search({ value, label, onSearch }: { value: string; label: string; onSearch: (text: string) => void }) {
  const [text, setText] = useState<string>();
  const done = () => {
    if (text !== undefined && text.trim() !== value) onSearch(text.trim());
    setText(undefined);
  };
  return (
    <Input
      allowClear
      className="yh-w-140"
      placeholder={label}
      aria-label={label}
      value={text ?? value}
      onChange={(e) => {
        setText(e.target.value);
        if (e.type === "click") onSearch("");
      }}
      onPressEnter={done}
      onBlur={done}
    />
  );
}

function List({ filter }: { filter: ResourceFilter }) {
  const { t } = useTranslation();
  const { resources } = useClients();
  const paged = usePaged({
    key: ["resources", "list", filter],
    everyMs: EVERY_MS,
    fetchPage: async (pageToken, signal) => {
      const { type, region, parentId, labels, attributes } = filter;
      const res = await resources.listResources(
        {
          pageSize: PAGE,
          pageToken,
          type,
          region,
          parentId,
          aiCenterId: filter.centerId,
          state: resourceStateOf(filter.state),
          labels,
          attributes,
        },
        call(signal),
      );
      return { items: res.resources, nextPageToken: res.nextPageToken };
    },
  });
  const filtered = Object.values(filter).some((v) => v.length > 0);
  return (
    <PagedRows paged={paged}>
      {(rows) => (
        <ResourceTable rows={rows} loading={paged.stale} empty={t(filtered ? "registry.noMatch" : "registry.none")} />
      )}
    </PagedRows>
  );
}

export function ResourceTable(props: { rows: Resource[]; loading?: boolean; empty: string }) {
  const { t } = useTranslation();
  const title = useTypeTitle();
  const columns: TableColumnsType<Resource> = [
    {
      title: t("registry.name"),
      key: "name",
      width: 230,
      ellipsis: true,
      render: (_, r) => (
        <Link to={resourcePath(r.resourceId)} className="yh-job-link">
          <b>{r.name || r.resourceId}</b>
          <small>{r.resourceId}</small>
        </Link>
      ),
    },
    { title: t("registry.type"), key: "type", width: 150, render: (_, r) => title(r.type) },
    { title: t("registry.state"), key: "state", width: 130, render: (_, r) => <ResourceStateTag state={r.state} /> },
    {
      title: t("registry.parent"),
      key: "parent",
      width: 170,
      ellipsis: true,
      render: (_, r) =>
        r.parentId ? <Link to={resourcePath(r.parentId)}>{r.parentId}</Link> : <span className="yh-none">{NONE}</span>,
    },
    { title: t("registry.region"), key: "region", width: 120, ellipsis: true, render: (_, r) => r.region || NONE },
    {
      title: t("registry.provider"),
      key: "provider",
      width: 140,
      ellipsis: true,
      render: (_, r) => r.serviceProvider || NONE,
    },
    {
      title: t("registry.below"),
      key: "children",
      width: 84,
      align: "right",
      render: (_, r) =>
        r.children > 0n ? (
          <Link to={`/resources?parent=${encodeURIComponent(r.resourceId)}`} className="yh-num">
            {formatCount(r.children)}
          </Link>
        ) : (
          <span className="yh-none">0</span>
        ),
    },
    { title: t("center.labels"), key: "labels", ellipsis: true, width: 200, render: (_, r) => <FewLabels of={r} /> },
    { title: t("common.updated"), key: "updated", width: 132, render: (_, r) => <Moment at={r.updatedAt} /> },
  ];
  return (
    <Table
      size="small"
      rowKey="resourceId"
      columns={columns}
      dataSource={props.rows}
      // A resource's "children" is a number, not rows.
      expandable={{ childrenColumnName: "rows" }}
      loading={props.loading}
      tableLayout="fixed"
      scroll={{ x: 1360 }}
      pagination={false}
      locale={{ emptyText: <Nothing text={props.empty} /> }}
    />
  );
}

const FEW = 2;

// A node has dozens of labels; the detail shows them all.
function FewLabels({ of: r }: { of: Resource }) {
  const names = Object.keys(r.labels).sort();
  const few = Object.fromEntries(names.slice(0, FEW).map((n) => [n, r.labels[n] ?? ""]));
  return (
    <>
      <Labels labels={few} />
      {names.length > FEW && <small className="yh-muted"> +{names.length - FEW}</small>}
    </>
  );
}
