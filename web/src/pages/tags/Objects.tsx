// Objects with their tags, those that a selector names, and changes of all of them at once.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Alert, Button, Drawer, Form, Input, Progress, Select, type TableColumnsType } from "antd";
import { useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useSearchParams } from "react-router";
import { call, newRequestId } from "../../api";
import { Labels, Problem } from "../../components/bits";
import { ObjectTagsView } from "../../components/ObjectTags";
import { ListTable, PagedTable, usePaged } from "../../components/Pager";
import { TagExpression } from "../../components/TagExpression";
import type { BatchResult, ObjectTags } from "../../gen/yunhe/tags/v1/tags_pb";
import { formatCount, NONE } from "../../lib/format";
import { type Change, changeOf, kindName, kindOf, OBJECT_KINDS, objectPath } from "../../lib/tags";
import { useCenters } from "../../queries";
import { useClients, useSession } from "../../session";

const PAGE = 50;

export function Objects() {
  const { t } = useTranslation();
  const { tags } = useClients();
  const { can } = useSession();
  const centers = useCenters();
  const [params, setParams] = useSearchParams();
  const kind = kindOf(params.get("kind") ?? "center");
  const centerId = params.get("center") ?? "";
  const expression = params.get("where") ?? "";
  const [typed, setTyped] = useState(expression);
  const [shown, setShown] = useState<string>();
  const [batch, setBatch] = useState(false);
  const change = (values: Record<string, string>) =>
    setParams(
      (now) => {
        const next = new URLSearchParams(now);
        for (const [k, v] of Object.entries(values)) {
          if (v) next.set(k, v);
          else next.delete(k);
        }
        return next;
      },
      { replace: true, preventScrollReset: true },
    );
  const selector = useMemo(() => ({ kinds: [kind], aiCenterId: centerId, expression }), [kind, centerId, expression]);
  const paged = usePaged({
    key: ["tags", "objects", selector],
    everyMs: 10_000,
    fetchPage: async (pageToken, signal) => {
      const res = await tags.listTaggedObjects({ selector, pageSize: PAGE, pageToken }, call(signal));
      return { items: res.objects, nextPageToken: res.nextPageToken };
    },
  });
  const columns: TableColumnsType<ObjectTags> = [
    {
      title: t("tag.object"),
      key: "object",
      width: 260,
      ellipsis: true,
      render: (_, o) => (
        <Button type="link" className="yh-link-cell" onClick={() => setShown(o.object)}>
          <span className="yh-job-link">
            <b>{o.name || o.object}</b>
            <small>{o.object}</small>
          </span>
        </Button>
      ),
    },
    {
      title: t("tag.tags"),
      key: "tags",
      render: (_, o) => (
        <Labels labels={Object.fromEntries(o.tags.filter((x) => !x.blocked).map((x) => [x.key, x.value]))} />
      ),
    },
  ];
  return (
    <>
      <Form layout="inline" className="yh-filters" role="search" aria-label={t("jobs.filters")}>
        <Select
          className="yh-w-180"
          aria-label={t("tag.kind")}
          value={kind}
          onChange={(k) => change({ kind: kindName(k) })}
          options={OBJECT_KINDS.map((k) => ({ value: k, label: t(`tag.kinds.${kindName(k)}`) }))}
        />
        <Select
          allowClear
          showSearch={{ optionFilterProp: "label" }}
          className="yh-w-200"
          placeholder={t("jobs.anyCenter")}
          aria-label={t("center.name")}
          value={centerId || undefined}
          onChange={(c?: string) => change({ center: c ?? "" })}
          options={(centers.data ?? []).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
        />
        <span className="yh-grow" />
        {can("registry.write") && (
          <Button onClick={() => setBatch(true)} data-testid="batch">
            {t("tag.batch")}
          </Button>
        )}
      </Form>
      <div className="yh-pad">
        <TagExpression
          value={typed}
          onChange={setTyped}
          kind={kind}
          label={t("tag.where")}
          placeholder={t("tag.whereExample")}
        />
        <div className="yh-row">
          <Button
            type="primary"
            disabled={typed.trim() === expression}
            onClick={() => change({ where: typed.trim() })}
            data-testid="find"
          >
            {t("tag.find")}
          </Button>
          {expression && (
            <Button
              type="link"
              onClick={() => {
                setTyped("");
                change({ where: "" });
              }}
            >
              {t("common.clear")}
            </Button>
          )}
        </div>
      </div>
      <PagedTable
        paged={paged}
        rowKey="object"
        columns={columns}
        tableLayout="auto"
        scroll={{ x: 700 }}
        data-testid="tagged-objects"
        empty={t(expression ? "tag.noMatch" : "tag.noObjects")}
      />
      <Drawer open={shown !== undefined} onClose={() => setShown(undefined)} size={860} title={shown} destroyOnHidden>
        {shown && (
          <>
            {objectPath(shown) && (
              <p>
                <Link to={objectPath(shown)}>{t("tag.toObject")}</Link>
              </p>
            )}
            <ObjectTagsView object={shown} />
          </>
        )}
      </Drawer>
      <Drawer open={batch} onClose={() => setBatch(false)} size={760} title={t("tag.batchTitle")} destroyOnHidden>
        <Batch
          selector={selector}
          what={[t(`tag.kinds.${kindName(kind)}`), centerId && `${t("center.name")}: ${centerId}`, expression].filter(
            Boolean,
          )}
        />
      </Drawer>
    </>
  );
}

interface Step {
  step: string;
  done: bigint;
  total: bigint;
}

function Batch(props: { selector: { kinds: number[]; aiCenterId: string; expression: string }; what: string[] }) {
  const { t } = useTranslation();
  const { tags } = useClients();
  const client = useQueryClient();
  const [texts, setTexts] = useState<string[]>([]);
  const [reason, setReason] = useState("");
  const [step, setStep] = useState<Step>();
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const changes = texts.map(changeOf);
  const wrong = texts.filter((_, i) => changes[i] === undefined);
  // One batch keeps its ID until it is written, so that a lost answer does not write it twice.
  const requestId = useRef("");
  const run = useMutation({
    mutationFn: async (dryRun: boolean) => {
      stop.current = new AbortController();
      setStep(undefined);
      requestId.current ||= newRequestId();
      let result: BatchResult | undefined;
      const answers = tags.applyTags(
        {
          selector: props.selector,
          changes: changes.filter((c): c is Change => c !== undefined),
          dryRun,
          reason: reason.trim(),
          requestId: dryRun ? "" : requestId.current,
        },
        { signal: stop.current.signal },
      );
      for await (const a of answers) {
        setStep(a);
        if (a.result) result = a.result;
      }
      if (result?.applied) requestId.current = "";
      return { dryRun, result };
    },
    onSettled: () => client.invalidateQueries({ queryKey: ["tags"] }),
  });
  const edit = (next: string[]) => {
    setTexts(next);
    requestId.current = "";
    run.reset();
  };
  const { dryRun, result } = run.data ?? {};
  return (
    <>
      <p>
        {t("tag.batchOf")}{" "}
        {props.what.map((w) => (
          <code key={w} className="yh-chip">
            {w}
          </code>
        ))}
      </p>
      <Select
        mode="tags"
        open={false}
        suffixIcon={null}
        className="yh-wide"
        value={texts}
        maxCount={50}
        placeholder={t("tag.changesExample")}
        aria-label={t("tag.changes")}
        status={wrong.length > 0 ? "error" : undefined}
        onChange={edit}
      />
      <p className="yh-muted">{t("tag.changesHelp")}</p>
      {wrong.length > 0 && (
        <Alert type="error" showIcon className="yh-problem" title={t("tag.wrongChange", { text: wrong.join(", ") })} />
      )}
      <Input
        value={reason}
        maxLength={80}
        placeholder={t("tag.reason")}
        aria-label={t("tag.reason")}
        onChange={(e) => setReason(e.target.value)}
      />
      <div className="yh-row yh-after-bars">
        <Button
          disabled={texts.length === 0 || wrong.length > 0}
          loading={run.isPending && run.variables}
          onClick={() => run.mutate(true)}
          data-testid="batch-check"
        >
          {t("tag.check")}
        </Button>
        <Button
          type="primary"
          disabled={!dryRun || !result || result.problems.length > 0 || result.changed === 0n || run.isPending}
          loading={run.isPending && !run.variables}
          onClick={() => run.mutate(false)}
          data-testid="batch-run"
        >
          {t("tag.apply")}
        </Button>
        {run.isPending && <Button onClick={() => stop.current.abort()}>{t("common.cancel")}</Button>}
      </div>
      <div className="yh-after-bars" aria-live="polite">
        {run.isPending && step && (
          <Progress
            percent={step.total > 0n ? Math.floor(Number((100n * step.done) / step.total)) : 0}
            status="active"
          />
        )}
        {run.error && <Problem error={run.error} />}
        {result && !run.isPending && <Result result={result} dryRun={dryRun ?? false} />}
      </div>
    </>
  );
}

function Result({ result: r, dryRun }: { result: BatchResult; dryRun: boolean }) {
  const { t } = useTranslation();
  if (r.problems.length > 0)
    return (
      <Alert
        type="error"
        showIcon
        title={t("tag.notApplied")}
        description={
          <ul className="yh-plain-list">
            {r.problems.map((p) => (
              <li key={`${p.object}/${p.field}/${p.problem}`}>
                {[p.object, p.field, p.problem].filter(Boolean).join(": ")}
              </li>
            ))}
          </ul>
        }
      />
    );
  return (
    <>
      <Alert
        type={dryRun ? "info" : "success"}
        showIcon
        className="yh-problem"
        data-testid="batch-result"
        title={t(dryRun ? "tag.wouldChange" : "tag.didChange", {
          changed: formatCount(r.changed),
          objects: formatCount(r.objects),
          unchanged: formatCount(r.unchanged),
        })}
        description={r.batchId || undefined}
      />
      {r.changes.length > 0 && (
        <ListTable
          rowKey={(c) => `${c.object}/${c.key}`}
          dataSource={r.changes}
          columns={[
            { title: t("tag.object"), dataIndex: "object", ellipsis: true },
            { title: t("tag.tag"), dataIndex: "key", width: 150, ellipsis: true },
            {
              title: t("tag.before"),
              key: "before",
              width: 130,
              ellipsis: true,
              render: (_, c) => (c.beforeBlocked ? t("tag.blocked") : c.before || NONE),
            },
            {
              title: t("tag.after"),
              key: "after",
              width: 130,
              ellipsis: true,
              render: (_, c) => (c.afterBlocked ? t("tag.blocked") : c.after || NONE),
            },
          ]}
        />
      )}
    </>
  );
}
