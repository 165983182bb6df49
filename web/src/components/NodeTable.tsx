// Nodes as a table, page by page, with a filter above and one node's details
// beside it.
import { LeftOutlined, RightOutlined } from "@ant-design/icons";
import { Button, Descriptions, Drawer, Form, Select, Table, type TableColumnsType, Tooltip } from "antd";
import { useEffect, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { type Center, type Node, NodeState } from "../gen/yunhe/registry/v1/registry_pb";
import { formatBytes, formatCount, NONE, parseQuantity } from "../lib/format";
import {
  acceleratorName,
  countOf,
  isFiltered,
  MAX_LABELS,
  NODE_STATES,
  type NodeFilter,
  nodeStateName,
  nodeStateOf,
  resourceNames,
  totalsOf,
} from "../lib/nodes";
import { useCenterNames, useNodes } from "../queries";
import { Labels, Loaded, Moment, NodeTag, Nothing } from "./bits";
import { NodeControl } from "./NodeControl";

const PAGE = 50;

export interface NodeChange {
  center?: string;
  state?: string;
  model?: string;
  label?: string[];
}

/** Nodes that pass the filter. Without a center in the filter a column names it. */
export function NodeTable(props: {
  filter: NodeFilter;
  /** Those whose nodes these are, for their number. */
  centers: readonly Center[];
  onChange: (change: NodeChange) => void;
  /** Set when nodes of one center only are shown. */
  fixed?: boolean;
}) {
  const { t } = useTranslation();
  const { filter } = props;
  const key = JSON.stringify(filter);
  // The tokens of the pages up to this one; another filter begins anew.
  const [way, setWay] = useState<{ key: string; tokens: string[] }>({ key, tokens: [""] });
  const tokens = way.key === key ? way.tokens : [""];
  const nodes = useNodes(filter, PAGE, tokens.at(-1) ?? "");
  const [open, setOpen] = useState<Node>();
  const next = nodes.data?.nextPageToken ?? "";
  const first = (tokens.length - 1) * PAGE + 1;
  const total = countOf(props.centers, filter);
  const rows = nodes.data?.nodes;
  // A page that lost its nodes goes back to one that has some.
  useEffect(() => {
    if (rows?.length === 0 && tokens.length > 1 && !nodes.isPlaceholderData) setWay({ key, tokens: [""] });
  }, [rows, tokens.length, nodes.isPlaceholderData, key]);
  return (
    <>
      <NodeFilters {...props} />
      <Loaded query={{ ...nodes, data: rows }} rows={8}>
        {(list) => (
          <Rows
            nodes={list}
            loading={nodes.isPlaceholderData}
            fixed={props.fixed ?? false}
            filtered={isFiltered(filter) || (filter.centerId !== "" && !props.fixed)}
            onOpen={setOpen}
          />
        )}
      </Loaded>
      {rows && (next || tokens.length > 1) && (
        <nav className="yh-pager" aria-label={t("node.pages")}>
          <span className="yh-num yh-muted" data-testid="page-range">
            {total === undefined
              ? t("node.range", { from: formatCount(first), to: formatCount(first + rows.length - 1) })
              : t("node.rangeOf", {
                  from: formatCount(first),
                  to: formatCount(first + rows.length - 1),
                  total: formatCount(total),
                })}
          </span>
          <Button
            size="small"
            icon={<LeftOutlined aria-hidden />}
            aria-label={t("node.previous")}
            disabled={tokens.length === 1}
            onClick={() => setWay({ key, tokens: tokens.slice(0, -1) })}
          />
          <Button
            size="small"
            icon={<RightOutlined aria-hidden />}
            aria-label={t("node.next")}
            disabled={!next || nodes.isPlaceholderData}
            onClick={() => setWay({ key, tokens: [...tokens, next] })}
          />
        </nav>
      )}
      <Drawer
        open={open !== undefined}
        onClose={() => setOpen(undefined)}
        size={560}
        title={open?.name}
        destroyOnHidden
      >
        {open && <Details node={rows?.find((n) => n.name === open.name && n.aiCenterId === open.aiCenterId) ?? open} />}
      </Drawer>
    </>
  );
}

function NodeFilters(props: Parameters<typeof NodeTable>[0]) {
  const { t } = useTranslation();
  const { filter, onChange, centers } = props;
  const models = useMemo(() => {
    const here = centers.filter((c) => filter.centerId === "" || c.aiCenterId === filter.centerId);
    return [...new Set(totalsOf(here).models.map((m) => m.model))].filter(Boolean).sort();
  }, [centers, filter.centerId]);
  return (
    <Form layout="inline" className="yh-filters" role="search" aria-label={t("jobs.filters")}>
      {!props.fixed && (
        <Select
          allowClear
          showSearch={{ optionFilterProp: "label" }}
          className="yh-w-200"
          placeholder={t("jobs.anyCenter")}
          aria-label={t("center.name")}
          value={filter.centerId || undefined}
          onChange={(center?: string) => onChange({ center: center ?? "" })}
          options={centers.filter((c) => c.nodes).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
        />
      )}
      <Select
        allowClear
        className="yh-w-140"
        placeholder={t("jobs.anyState")}
        aria-label={t("node.state")}
        value={filter.state === NodeState.UNSPECIFIED ? undefined : nodeStateName(filter.state)}
        onChange={(state?: string) => onChange({ state: state ?? "" })}
        options={NODE_STATES.map((s) => ({ value: nodeStateName(s), label: t(`node.states.${nodeStateName(s)}`) }))}
      />
      {(models.length > 0 || filter.model !== "") && (
        <Select
          allowClear
          showSearch
          className="yh-w-200"
          placeholder={t("node.anyModel")}
          aria-label={t("node.model")}
          value={filter.model || undefined}
          onChange={(model?: string) => onChange({ model: model ?? "" })}
          options={models.map((m) => ({ value: m, label: m }))}
        />
      )}
      <Select
        mode="tags"
        open={false}
        suffixIcon={null}
        allowClear
        maxCount={MAX_LABELS}
        className="yh-label-filter"
        placeholder={t("node.labelFilter")}
        aria-label={t("node.labelFilter")}
        value={filter.labels}
        tokenSeparators={[",", " "]}
        onChange={(label: string[]) => onChange({ label })}
      />
      {(isFiltered(filter) || (!props.fixed && filter.centerId !== "")) && (
        <Button type="link" onClick={() => onChange({ center: "", state: "", model: "", label: [] })}>
          {t("common.clear")}
        </Button>
      )}
    </Form>
  );
}

function Rows(props: {
  nodes: Node[];
  loading: boolean;
  fixed: boolean;
  filtered: boolean;
  onOpen: (node: Node) => void;
}) {
  const { t } = useTranslation();
  const centerName = useCenterNames();
  const columns: TableColumnsType<Node> = [
    {
      title: t("node.name"),
      key: "name",
      width: 190,
      ellipsis: true,
      render: (_, n) => (
        <Button type="link" className="yh-link-cell" onClick={() => props.onOpen(n)}>
          {n.name}
        </Button>
      ),
    },
    {
      title: t("node.state"),
      key: "state",
      width: 130,
      render: (_, n) => (
        <Tooltip title={n.reason}>
          <span>
            <NodeTag state={n.state} />
            {n.reason && <small className="yh-reason">{n.reason}</small>}
          </span>
        </Tooltip>
      ),
    },
    ...(props.fixed
      ? []
      : [
          {
            title: t("center.name"),
            key: "center",
            width: 150,
            ellipsis: true,
            render: (_: unknown, n: Node) => (
              <Link to={`/centers/${encodeURIComponent(n.aiCenterId)}`}>{centerName(n.aiCenterId)}</Link>
            ),
          },
        ]),
    {
      title: t("resource.cpu"),
      key: "cpu",
      width: 100,
      align: "right",
      render: (_, n) => <Amount node={n} name="cpu" />,
    },
    {
      title: t("resource.memory"),
      key: "memory",
      width: 140,
      align: "right",
      render: (_, n) => <Amount node={n} name="memory" />,
    },
    { title: t("resource.accelerators"), key: "accelerators", width: 190, render: (_, n) => <Accelerators node={n} /> },
    {
      title: t("node.platform"),
      key: "platform",
      width: 112,
      ellipsis: true,
      render: (_, n) => [n.operatingSystem, n.architecture].filter(Boolean).join(" / ") || NONE,
    },
    { title: t("node.changed"), key: "changed", width: 124, render: (_, n) => <Moment at={n.updatedAt} /> },
  ];
  return (
    <Table
      size="small"
      rowKey={(n) => `${n.aiCenterId}/${n.name}`}
      columns={columns}
      dataSource={props.nodes}
      loading={props.loading}
      tableLayout="fixed"
      scroll={{ x: props.fixed ? 980 : 1100 }}
      pagination={false}
      locale={{ emptyText: <Nothing text={t(props.filtered ? "node.noMatch" : "node.none")} /> }}
    />
  );
}

/** What jobs may use of a resource, and what the node has if that is more. */
function Amount({ node, name }: { node: Node; name: string }) {
  const has = node.capacity[name];
  const may = node.allocatable[name] ?? has;
  if (may === undefined) return <span className="yh-none">{NONE}</span>;
  return (
    <span className="yh-num">
      {amountText(name, may)}
      {has !== undefined && has !== may && <em className="yh-of"> / {amountText(name, has)}</em>}
    </span>
  );
}

const BYTES = new Set(["memory", "storage", "ephemeral-storage"]);

function amountText(name: string, text: string): string {
  const value = parseQuantity(text);
  if (value === undefined) return text;
  return BYTES.has(name) ? formatBytes(value) : Number.isInteger(value) ? formatCount(value) : `${value}`;
}

function Accelerators({ node }: { node: Node }) {
  if (node.accelerators.length === 0) return <span className="yh-none">{NONE}</span>;
  return (
    <>
      {node.accelerators.map((a) => (
        <div key={`${a.resource}/${a.vendor}/${a.model}/${a.memoryBytes}`}>
          <span className="yh-num">{formatCount(a.count)}</span> × {acceleratorName(a)}
          {a.memoryBytes > 0n && <span className="yh-muted"> {formatBytes(a.memoryBytes)}</span>}
        </div>
      ))}
    </>
  );
}

function Details({ node: n }: { node: Node }) {
  const { t } = useTranslation();
  const centerName = useCenterNames();
  const names = resourceNames(n.capacity, n.allocatable);
  return (
    <>
      <Descriptions
        size="small"
        column={1}
        items={[
          { key: "state", label: t("node.state"), children: <NodeTag state={n.state} /> },
          ...(n.reason ? [{ key: "reason", label: t("node.reason"), children: n.reason }] : []),
          {
            key: "center",
            label: t("center.name"),
            children: <Link to={`/centers/${encodeURIComponent(n.aiCenterId)}`}>{centerName(n.aiCenterId)}</Link>,
          },
          {
            key: "platform",
            label: t("node.platform"),
            children: [n.operatingSystem, n.architecture].filter(Boolean).join(" / ") || NONE,
          },
          {
            key: "accelerators",
            label: t("resource.accelerators"),
            children: (
              <div>
                <Accelerators node={n} />
              </div>
            ),
          },
          { key: "created", label: t("node.reported"), children: <Moment at={n.createdAt} long /> },
          { key: "updated", label: t("node.changed"), children: <Moment at={n.updatedAt} long /> },
          { key: "labels", label: t("center.labels"), children: <Labels labels={n.labels} /> },
        ]}
      />
      <NodeControl node={n} />
      <Table
        className="yh-after-bars"
        size="small"
        rowKey={(name) => name}
        dataSource={names}
        pagination={false}
        locale={{ emptyText: <Nothing text={t("node.noAmounts")} /> }}
        columns={[
          { title: t("spec.resource"), key: "name", render: (_, name) => <code>{name}</code> },
          {
            title: t("node.allocatable"),
            key: "allocatable",
            align: "right",
            render: (_, name) => <Figure name={name} text={n.allocatable[name]} />,
          },
          {
            title: t("node.capacity"),
            key: "capacity",
            align: "right",
            render: (_, name) => <Figure name={name} text={n.capacity[name]} />,
          },
        ]}
      />
    </>
  );
}

function Figure({ name, text }: { name: string; text: string | undefined }) {
  if (text === undefined) return <span className="yh-none">{NONE}</span>;
  return <span className="yh-num">{amountText(name, text)}</span>;
}

/** A filter as the address has it. */
export function nodeFilterOf(params: URLSearchParams): NodeFilter {
  return {
    centerId: params.get("center") ?? "",
    state: nodeStateOf(params.get("state") ?? ""),
    model: params.get("model") ?? "",
    labels: params.getAll("label").slice(0, MAX_LABELS),
  };
}
