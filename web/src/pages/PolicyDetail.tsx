// One policy: what it says, its versions and what differs between them, what
// it would do, and its life: validated, simulated, issued, compared, rolled back.
import { create } from "@bufbuild/protobuf";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Button, Checkbox, Drawer, Input, Modal, Table, Tabs } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate, useParams, useSearchParams } from "react-router";
import { call } from "../api";
import { Copyable, Fact, Loaded, Moment, Nothing, PageHead, Panel, Problem } from "../components/bits";
import { ListTable } from "../components/Pager";
import {
  type PolicyRecord,
  type PolicyScope,
  PolicyScopeSchema,
  PolicyState,
  type PolicyVersion,
} from "../gen/yunhe/policies/v1/policies_pb";
import { NONE } from "../lib/format";
import { documentText, valueText } from "../lib/policies";
import { useClients } from "../session";
import { ScopeFields } from "./policies/fields";
import { PolicyEditor, ProblemList } from "./policies/PolicyEditor";
import { PolicyTag, useScopeText } from "./policies/Records";
import { StartTest, TestList } from "./policies/Tests";
import { Simulate, Try } from "./policies/Trials";

const EVERY_MS = 5000;
type Action = "issue" | "withdraw" | "rollback" | "delete";

export function PolicyDetail() {
  const { t } = useTranslation();
  const { policyId = "" } = useParams();
  const { policies } = useClients();
  const [params, setParams] = useSearchParams();
  const record = useQuery({
    queryKey: ["policies", "record", policyId],
    queryFn: ({ signal }) => policies.getPolicyRecord({ policyId }, call(signal)),
    refetchInterval: EVERY_MS,
  });
  const versions = useQuery({
    queryKey: ["policies", "versions", policyId],
    queryFn: async ({ signal }) => (await policies.listPolicyVersions({ policyId }, call(signal))).versions,
    refetchInterval: EVERY_MS,
  });
  const scope = useScopeText();
  const [ask, setAsk] = useState<{ action: Action; version: bigint }>();
  const [editing, setEditing] = useState(false);
  const [testing, setTesting] = useState(false);
  const r = record.data;
  const may = (operation: string) => r?.operations.includes(operation) ?? false;
  const latest = versions.data?.[0];
  const tabs = [
    { key: "document", label: t("record.document"), children: latest && <Document versions={versions.data ?? []} /> },
    {
      key: "versions",
      label: t("record.versions"),
      children: r && (
        <Versions record={r} versions={versions.data ?? []} onAsk={(action, version) => setAsk({ action, version })} />
      ),
    },
    { key: "try", label: t("record.try"), children: latest && <Try policyId={policyId} version={latest.version} /> },
    {
      key: "simulate",
      label: t("record.simulate"),
      children: latest && <Simulate policyId={policyId} version={latest.version} allowed={may("simulate")} />,
    },
    { key: "tests", label: t("record.tests"), children: <TestList policyId={policyId} /> },
    { key: "events", label: t("tag.history"), children: <Events policyId={policyId} /> },
  ];
  const tab = tabs.find((x) => x.key === params.get("tab"))?.key ?? "document";
  return (
    <>
      <PageHead
        title={r?.version?.document?.title || policyId}
        back={{ to: "/policies?tab=records", label: t("nav.policies") }}
        after={r && <PolicyTag state={r.version?.state ?? PolicyState.UNSPECIFIED} />}
        sub={<Copyable text={policyId} />}
        extra={
          r && (
            <div className="yh-row">
              {may("update") && <Button onClick={() => setEditing(true)}>{t("registry.edit")}</Button>}
              {may("test") && r.testId === "" && (
                <Button onClick={() => setTesting(true)} data-testid="start-test">
                  {t("record.startTest")}
                </Button>
              )}
              {may("rollback") && (
                <Button onClick={() => setAsk({ action: "rollback", version: 0n })} data-testid="rollback">
                  {t("record.actions.rollback")}
                </Button>
              )}
              {may("withdraw") && (
                <Button danger onClick={() => setAsk({ action: "withdraw", version: 0n })} data-testid="withdraw">
                  {t("record.actions.withdraw")}
                </Button>
              )}
              {may("delete") && (
                <Button danger onClick={() => setAsk({ action: "delete", version: 0n })}>
                  {t("common.delete")}
                </Button>
              )}
              {may("issue") && (
                <Button
                  type="primary"
                  onClick={() => setAsk({ action: "issue", version: r.latestVersion })}
                  data-testid="issue"
                >
                  {t("record.issueVersion", { version: r.latestVersion.toString() })}
                </Button>
              )}
            </div>
          )
        }
      />
      <Loaded query={record} rows={8}>
        {(data) => (
          <>
            <Panel>
              <div className="yh-facts">
                <Fact label={t("record.inForce")}>
                  <span className="yh-num yh-strong" data-testid="issued-version">
                    {data.issuedVersion > 0n ? data.issuedVersion.toString() : NONE}
                  </span>
                </Fact>
                <Fact label={t("record.latest")}>
                  <span className="yh-num">{data.latestVersion.toString()}</span>
                </Fact>
                <Fact label={t("record.scope")}>
                  {data.issuedVersion > 0n ? scope(data.issuedScope) : scope(data.version?.document?.scope)}
                </Fact>
                <Fact label={t("tag.priority")}>{data.version?.document?.priority ?? 0}</Fact>
                <Fact label={t("record.issuedAt")}>
                  <Moment at={data.issuedAt} /> {data.issuedBy}
                </Fact>
                <Fact label={t("record.checked")}>
                  <Moment at={latest?.checkedAt} /> {latest?.validationMethod}
                </Fact>
              </div>
            </Panel>
            <Panel flush className="yh-tabs">
              <Tabs
                activeKey={tab}
                onChange={(key) => setParams({ tab: key }, { replace: true, preventScrollReset: true })}
                items={tabs}
                destroyOnHidden
              />
            </Panel>
          </>
        )}
      </Loaded>
      <Drawer
        open={editing}
        onClose={() => setEditing(false)}
        size={820}
        title={t("record.editTitle", { id: policyId })}
        destroyOnHidden
      >
        {r && latest?.document && (
          <PolicyEditor document={latest.document} baseVersion={r.latestVersion} onSaved={() => setEditing(false)} />
        )}
      </Drawer>
      <Modal
        open={testing}
        onCancel={() => setTesting(false)}
        footer={null}
        title={t("record.startTestTitle", { id: policyId })}
        destroyOnHidden
      >
        {r && (
          <StartTest
            policyId={policyId}
            versions={versions.data ?? []}
            issued={r.issuedVersion}
            onClose={() => setTesting(false)}
          />
        )}
      </Modal>
      <Modal
        open={ask !== undefined}
        onCancel={() => setAsk(undefined)}
        footer={null}
        title={
          ask && t(`record.ask.${ask.action}`, { id: policyId, version: ask.version > 0n ? `@${ask.version}` : "" })
        }
        destroyOnHidden
      >
        {ask && <Ask policyId={policyId} {...ask} onClose={() => setAsk(undefined)} />}
      </Modal>
    </>
  );
}

function Ask(props: { policyId: string; action: Action; version: bigint; onClose: () => void }) {
  const { t } = useTranslation();
  const { policies } = useClients();
  const { message } = App.useApp();
  const client = useQueryClient();
  const navigate = useNavigate();
  const { policyId, action, version } = props;
  const [text, setText] = useState("");
  // The scope it is issued to; undefined: the document's.
  const [scope, setScope] = useState<PolicyScope>();
  const write = useMutation({
    mutationFn: async () => {
      const reason = text.trim();
      switch (action) {
        case "issue":
          await policies.issuePolicy({ policyId, version, reason, scope }, call());
          break;
        case "withdraw":
          await policies.withdrawPolicy({ policyId, reason }, call());
          break;
        case "rollback":
          await policies.rollBackPolicy({ policyId, version, reason }, call());
          break;
        case "delete":
          await policies.deletePolicy({ policyId, reason }, call());
      }
    },
    onSuccess: async () => {
      void message.success(t(`record.done.${action}`));
      props.onClose();
      if (action === "delete") void navigate("/policies?tab=records");
      await client.invalidateQueries({ queryKey: ["policies"], refetchType: action === "delete" ? "none" : "active" });
    },
  });
  return (
    <>
      {write.error && <Problem error={write.error} />}
      <p>{t(`record.askHelp.${action}`)}</p>
      {action === "issue" && (
        <>
          <Checkbox
            checked={scope !== undefined}
            onChange={(e) => setScope(e.target.checked ? create(PolicyScopeSchema) : undefined)}
          >
            {t("record.issueScope")}
          </Checkbox>
          {scope && <ScopeFields scope={scope} onChange={(part) => setScope({ ...scope, ...part })} />}
        </>
      )}
      <Input
        value={text}
        maxLength={512}
        autoFocus
        placeholder={t("tag.reason")}
        aria-label={t("tag.reason")}
        onChange={(e) => setText(e.target.value)}
        onPressEnter={() => write.mutate()}
      />
      <div className="yh-row yh-after-bars">
        <Button
          type="primary"
          danger={action === "withdraw" || action === "delete"}
          loading={write.isPending}
          onClick={() => write.mutate()}
          data-testid="ask-confirm"
        >
          {t(`record.actions.${action}`)}
        </Button>
        <Button onClick={props.onClose}>{t("common.cancel")}</Button>
      </div>
    </>
  );
}

function Document({ versions }: { versions: PolicyVersion[] }) {
  const { t } = useTranslation();
  const { policies } = useClients();
  const latest = versions[0];
  const check = useQuery({
    queryKey: ["policies", "problems", latest?.document?.policyId, latest?.version.toString()],
    queryFn: ({ signal }) => policies.validatePolicy({ document: latest?.document }, call(signal)),
    retry: false,
    enabled: latest?.document !== undefined,
  });
  if (!latest?.document) return null;
  return (
    <div className="yh-pad">
      <p className="yh-muted">{t("record.versionIs", { version: latest.version.toString() })}</p>
      <ProblemList problems={check.data?.problems ?? []} />
      <pre className="yh-document" data-testid="policy-document">
        {documentText(latest.document)}
      </pre>
    </div>
  );
}

function Versions(props: {
  record: PolicyRecord;
  versions: PolicyVersion[];
  onAsk: (action: Action, version: bigint) => void;
}) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { policies } = useClients();
  const client = useQueryClient();
  const { record: r, versions } = props;
  const [chosen, setChosen] = useState<bigint[]>([]);
  const validate = useMutation({
    mutationFn: (version: bigint) => policies.validatePolicy({ policyId: r.policyId, version }, call()),
    onSuccess: async (res) => {
      void (res.valid
        ? message.success(t("record.valid"))
        : message.error(res.problems.find((p) => !p.warning)?.problem ?? ""));
      await client.invalidateQueries({ queryKey: ["policies"] });
    },
  });
  const may = (operation: string) => r.operations.includes(operation);
  const pair = chosen.length === 2 ? [...chosen].sort((a, b) => (a < b ? -1 : 1)) : undefined;
  return (
    <>
      <p className="yh-muted yh-pad yh-flat">{t("record.pickTwo")}</p>
      {validate.error && <Problem error={validate.error} />}
      <ListTable
        rowKey={(v) => v.version.toString()}
        dataSource={versions}
        tableLayout="fixed"
        scroll={{ x: 940 }}
        data-testid="policy-versions"
        rowSelection={{
          hideSelectAll: true,
          columnWidth: 40,
          selectedRowKeys: chosen.map(String),
          onChange: (keys) => setChosen(keys.slice(-2).map((k) => BigInt(k as string))),
          getCheckboxProps: (v) => ({ "aria-label": t("record.pick", { version: v.version.toString() }) }),
        }}
        columns={[
          {
            title: t("record.version"),
            key: "version",
            width: 90,
            render: (_, v) => <b className="yh-num">{v.version.toString()}</b>,
          },
          { title: t("registry.state"), key: "state", width: 130, render: (_, v) => <PolicyTag state={v.state} /> },
          { title: t("record.note"), key: "note", ellipsis: true, render: (_, v) => v.note || NONE },
          { title: t("operation.by"), key: "by", width: 130, ellipsis: true, render: (_, v) => v.createdBy },
          { title: t("common.created"), key: "created", width: 132, render: (_, v) => <Moment at={v.createdAt} /> },
          { title: t("record.checked"), key: "checked", width: 132, render: (_, v) => <Moment at={v.checkedAt} /> },
          {
            key: "actions",
            width: 190,
            align: "right",
            render: (_, v) => (
              <div className="yh-row yh-row-end">
                {may("validate") && (
                  <Button size="small" type="text" onClick={() => validate.mutate(v.version)}>
                    {t("record.validate")}
                  </Button>
                )}
                {v.version !== r.issuedVersion && may("issue") && (
                  <Button size="small" onClick={() => props.onAsk("issue", v.version)}>
                    {t("record.actions.issue")}
                  </Button>
                )}
              </div>
            ),
          },
        ]}
      />
      {pair && <Diff policyId={r.policyId} from={pair[0] ?? 0n} to={pair[1] ?? 0n} />}
    </>
  );
}

function Diff({ policyId, from, to }: { policyId: string; from: bigint; to: bigint }) {
  const { t } = useTranslation();
  const { policies } = useClients();
  const diff = useQuery({
    queryKey: ["policies", "diff", policyId, from.toString(), to.toString()],
    queryFn: async ({ signal }) =>
      (await policies.diffPolicyVersions({ policyId, from, to }, call(signal))).differences,
  });
  return (
    <div className="yh-pad">
      <h3 className="yh-small-title">{t("record.between", { from: from.toString(), to: to.toString() })}</h3>
      <Loaded query={diff} rows={3}>
        {(list) => (
          <Table
            size="small"
            rowKey="path"
            dataSource={list}
            pagination={false}
            data-testid="policy-diff"
            locale={{ emptyText: <Nothing text={t("record.same")} /> }}
            columns={[
              { title: t("registry.field"), key: "path", width: 240, render: (_, d) => <code>{d.path}</code> },
              {
                title: t("tag.before"),
                key: "before",
                render: (_, d) => <del className="yh-wrap yh-diff-before">{valueText(d.before) || NONE}</del>,
              },
              {
                title: t("tag.after"),
                key: "after",
                render: (_, d) => <ins className="yh-wrap yh-diff-after">{valueText(d.after) || NONE}</ins>,
              },
            ]}
          />
        )}
      </Loaded>
    </div>
  );
}

function Events({ policyId }: { policyId: string }) {
  const { t } = useTranslation();
  const { policies } = useClients();
  const events = useQuery({
    queryKey: ["policies", "events", policyId],
    queryFn: async ({ signal }) => (await policies.listPolicyEvents({ policyId, pageSize: 200 }, call(signal))).events,
    refetchInterval: EVERY_MS,
  });
  return (
    <Loaded query={events} rows={4}>
      {(list) => (
        <ListTable
          rowKey={(e) => `${e.at?.seconds}.${e.at?.nanos}/${e.action}/${e.version}`}
          dataSource={list}
          data-testid="policy-events"
          columns={[
            { title: t("audit.at"), key: "at", width: 132, render: (_, e) => <Moment at={e.at} /> },
            { title: t("record.action"), dataIndex: "action", width: 150 },
            { title: t("record.version"), key: "version", width: 90, render: (_, e) => e.version.toString() },
            { title: t("operation.by"), dataIndex: "userId", width: 140 },
            { title: t("tag.reason"), key: "reason", render: (_, e) => e.reason || NONE },
          ]}
        />
      )}
    </Loaded>
  );
}
