// The tags of one object, with where each value comes from, and what might be added.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { App, AutoComplete, Button, Input, Select, Table, type TableColumnsType, Tooltip } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call, newRequestId } from "../api";
import { ChangeOp, type ObjectTag, type ObjectTags, TagStatus } from "../gen/yunhe/tags/v1/tags_pb";
import { messageOf } from "../lib/errors";
import { NONE } from "../lib/format";
import { type Change, originOf, tagTitle, valuesOf } from "../lib/tags";
import { useClients, useSession } from "../session";
import { Loaded, Moment, Nothing, Panel, Problem, Tag } from "./bits";

const EVERY_MS = 5000;

/** The library of tags. */
export function useTagLibrary() {
  const { tags } = useClients();
  return useQuery({
    queryKey: ["tags", "library"],
    queryFn: async ({ signal }) => (await tags.listTags({}, call(signal))).tags,
    refetchInterval: 10_000,
  });
}

export function useObjectTags(object: string) {
  const { tags } = useClients();
  return useQuery({
    queryKey: ["tags", "object", object],
    queryFn: ({ signal }) => tags.getObjectTags({ object }, call(signal)),
    refetchInterval: EVERY_MS,
  });
}

export function ObjectTagsPanel({ object }: { object: string }) {
  const { t } = useTranslation();
  return (
    <Panel flush title={t("tag.tags")}>
      <ObjectTagsView object={object} />
    </Panel>
  );
}

export function ObjectTagsView({ object }: { object: string }) {
  const { can } = useSession();
  const tags = useObjectTags(object);
  const write = can("registry.write");
  return (
    <>
      <Loaded query={tags} rows={3}>
        {(data) => <Values of={data} write={write} />}
      </Loaded>
      {write && <Add object={object} />}
      <Recommendations object={object} write={write} />
    </>
  );
}

function useChange(object: string) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { tags } = useClients();
  const client = useQueryClient();
  return useMutation({
    mutationFn: async ({ change, reason }: { change: Change; reason: string }) => {
      const { result } = await tags.setTags(
        { objects: [object], changes: [change], requestId: newRequestId(), reason },
        call(),
      );
      const problem = result?.problems[0];
      if (problem) throw new Error(problem.problem);
    },
    onSuccess: async () => {
      void message.success(t("tag.changed"));
      await client.invalidateQueries({ queryKey: ["tags"] });
    },
  });
}

function Values({ of, write }: { of: ObjectTags; write: boolean }) {
  const { t, i18n } = useTranslation();
  const { message } = App.useApp();
  const change = useChange(of.object);
  const act = (key: string, op: ChangeOp) =>
    change.mutate({ change: { key, value: "", op }, reason: "" }, { onError: (e) => void message.error(messageOf(e)) });
  const columns: TableColumnsType<ObjectTag> = [
    {
      title: t("tag.tag"),
      key: "key",
      width: 200,
      ellipsis: true,
      render: (_, x) => (
        <span className="yh-job-link">
          <b>{tagTitle(x, i18n.language)}</b>
          <small>{x.key}</small>
        </span>
      ),
    },
    {
      title: t("tag.value"),
      key: "value",
      width: 190,
      ellipsis: true,
      render: (_, x) =>
        x.blocked ? <span className="yh-muted">{t("tag.blocked")}</span> : <b className="yh-cut">{x.value}</b>,
    },
    {
      title: t("tag.origin"),
      key: "origin",
      width: 230,
      ellipsis: true,
      render: (_, x) => (
        <Tooltip
          title={[x.reason, ...x.hides.map((h) => t("tag.hides", { value: h.value, from: h.from }))].join(" · ")}
        >
          <span>
            {t(`tag.origins.${originOf(of.object, x)}`, { from: x.from, origin: x.origin || t("tag.platform") })}
            {x.status === TagStatus.RETIRED && <Tag tone="neutral" text={t("tag.retired")} />}
          </span>
        </Tooltip>
      ),
    },
    { title: t("common.updated"), key: "updated", width: 132, render: (_, x) => <Moment at={x.updatedAt} /> },
  ];
  if (write)
    columns.push({
      key: "actions",
      width: 170,
      align: "right",
      render: (_, x) => (
        <>
          {x.operations.includes("clear") && (
            <Tooltip title={t("tag.clearHelp")}>
              <Button size="small" type="text" onClick={() => act(x.key, ChangeOp.CLEAR)}>
                {t("tag.clear")}
              </Button>
            </Tooltip>
          )}
          {x.operations.includes("block") && !x.blocked && (
            <Tooltip title={t("tag.blockHelp")}>
              <Button size="small" type="text" onClick={() => act(x.key, ChangeOp.BLOCK)}>
                {t("tag.block")}
              </Button>
            </Tooltip>
          )}
        </>
      ),
    });
  return (
    <Table
      size="small"
      rowKey="key"
      columns={columns}
      dataSource={of.tags}
      pagination={false}
      tableLayout="fixed"
      scroll={{ x: 760 }}
      data-testid="object-tags"
      locale={{ emptyText: <Nothing text={t("tag.noneHere")} /> }}
    />
  );
}

function Add({ object }: { object: string }) {
  const { t, i18n } = useTranslation();
  const library = useTagLibrary();
  const change = useChange(object);
  const [key, setKey] = useState<string>();
  const [value, setValue] = useState("");
  const [reason, setReason] = useState("");
  const tag = library.data?.find((x) => x.key === key);
  const values = valuesOf(tag);
  const usable = (library.data ?? []).filter((x) => x.status !== TagStatus.RETIRED && x.operations.includes("set"));
  const set = () => {
    if (!key) return;
    change.mutate(
      { change: { key, value: value.trim(), op: ChangeOp.SET }, reason: reason.trim() },
      {
        onSuccess: () => {
          setKey(undefined);
          setValue("");
          setReason("");
        },
      },
    );
  };
  return (
    <div className="yh-pad">
      {change.error && <Problem error={change.error} />}
      <div className="yh-row">
        <Select
          className="yh-w-200"
          showSearch={{ optionFilterProp: "label" }}
          value={key}
          placeholder={t("tag.tag")}
          aria-label={t("tag.tag")}
          onChange={(k: string) => {
            setKey(k);
            setValue("");
          }}
          options={usable.map((x) => ({ value: x.key, label: `${tagTitle(x, i18n.language)} (${x.key})` }))}
        />
        <AutoComplete
          className="yh-w-180"
          value={value}
          placeholder={t("tag.value")}
          aria-label={t("tag.value")}
          onChange={(v: string) => setValue(v)}
          options={(values ?? []).map((v) => ({ value: v }))}
        />
        <Input
          className="yh-w-240"
          value={reason}
          maxLength={80}
          placeholder={t("tag.reason")}
          aria-label={t("tag.reason")}
          onChange={(e) => setReason(e.target.value)}
        />
        <Button disabled={!key || value.trim() === ""} loading={change.isPending} onClick={set} data-testid="set-tag">
          {t("tag.set")}
        </Button>
      </div>
    </div>
  );
}

function Recommendations({ object, write }: { object: string; write: boolean }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { tags } = useClients();
  const client = useQueryClient();
  const list = useQuery({
    queryKey: ["tags", "recommendations", object],
    queryFn: async ({ signal }) => (await tags.listTagRecommendations({ object }, call(signal))).recommendations,
  });
  const answer = useMutation({
    mutationFn: (a: { key: string; value: string; accept: boolean }) =>
      tags.answerTagRecommendation({ object, ...a }, call()),
    onSuccess: () => client.invalidateQueries({ queryKey: ["tags"] }),
    onError: (e) => void message.error(messageOf(e)),
  });
  if (!list.data || list.data.length === 0) return null;
  return (
    <div className="yh-pad" data-testid="recommendations">
      <h3 className="yh-small-title">{t("tag.recommended")}</h3>
      <ul className="yh-recommendations">
        {list.data.map((r) => (
          <li key={`${r.key}=${r.value}`}>
            <code>
              {r.key}={r.value}
            </code>
            <span className="yh-num">{t("tag.score", { score: r.score })}</span>
            <span className="yh-muted">
              {r.reason || NONE}
              {r.alike.length > 0 && ` · ${r.alike.map((a) => `${a.name || a.object} ${a.similarity} %`).join(", ")}`}
            </span>
            {write && (
              <span className="yh-row">
                <Button
                  size="small"
                  loading={answer.isPending}
                  onClick={() => answer.mutate({ key: r.key, value: r.value, accept: true })}
                >
                  {t("tag.accept")}
                </Button>
                <Button
                  size="small"
                  type="text"
                  onClick={() => answer.mutate({ key: r.key, value: r.value, accept: false })}
                >
                  {t("tag.dismiss")}
                </Button>
              </span>
            )}
          </li>
        ))}
      </ul>
    </div>
  );
}
