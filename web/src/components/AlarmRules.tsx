// The rules that raise alarms of one kind of thing: on or off, from where on, and how bad it is.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Button, Form, InputNumber, Modal, Select, Switch, Table, type TableColumnsType } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { messageOf } from "../lib/errors";
import { NONE } from "../lib/format";
import { severityOf } from "../lib/poolops";
import { Loaded } from "./bits";
import { useServerErrors } from "./useServerErrors";

export interface AlarmRule {
  kind: number;
  enabled: boolean;
  threshold: bigint;
  severity: number;
}

interface Props<R extends AlarmRule> {
  queryKey: string[];
  list: (signal: AbortSignal) => Promise<R[]>;
  set: (rule: Pick<R, keyof AlarmRule>) => Promise<unknown>;
  keyOf: (rule: R) => string;
  nameOf: (rule: R) => string;
  /** Of its threshold; "": it has none. */
  unitOf: (rule: R) => string;
  write: boolean;
  testId: string;
}

export function SeverityMark({ severity }: { severity: number }) {
  const { t } = useTranslation();
  const name = severityOf(severity);
  return <span className={`yh-severity yh-severity-${name}`}>{t(`alarm.severities.${name}`)}</span>;
}

export function AlarmRules<R extends AlarmRule>(props: Props<R>) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const client = useQueryClient();
  const [edited, setEdited] = useState<R>();
  const list = useQuery({ queryKey: [...props.queryKey, "rules"], queryFn: ({ signal }) => props.list(signal) });
  const enable = useMutation({
    mutationFn: ({ rule: r, enabled }: { rule: R; enabled: boolean }) =>
      props.set({ kind: r.kind, enabled, threshold: r.threshold, severity: r.severity }),
    onSuccess: () => client.invalidateQueries({ queryKey: props.queryKey }),
    onError: (e) => void message.error(messageOf(e)),
  });
  const columns: TableColumnsType<R> = [
    { title: t("poolops.rule"), key: "rule", render: (_, r) => <b>{props.nameOf(r)}</b> },
    {
      title: t("poolops.enabled"),
      key: "enabled",
      width: 110,
      render: (_, r) => (
        <Switch
          size="small"
          checked={r.enabled}
          disabled={!props.write || enable.isPending}
          aria-label={`${t("poolops.enabled")} ${props.nameOf(r)}`}
          onChange={(enabled) => enable.mutate({ rule: r, enabled })}
        />
      ),
    },
    {
      title: t("poolops.threshold"),
      key: "threshold",
      width: 200,
      align: "right",
      render: (_, r) => <span className="yh-num">{props.unitOf(r) ? `${r.threshold} ${props.unitOf(r)}` : NONE}</span>,
    },
    {
      title: t("poolops.severity"),
      key: "severity",
      width: 140,
      render: (_, r) => <SeverityMark severity={r.severity} />,
    },
  ];
  if (props.write)
    columns.push({
      key: "actions",
      width: 100,
      align: "right",
      render: (_, r) => (
        <Button size="small" onClick={() => setEdited(r)}>
          {t("poolops.edit")}
        </Button>
      ),
    });
  return (
    <Loaded query={list} rows={5}>
      {(rules) => (
        <>
          <Table
            size="small"
            rowKey={props.keyOf}
            columns={columns}
            dataSource={rules}
            pagination={false}
            data-testid={props.testId}
          />
          <Modal
            open={!!edited}
            onCancel={() => setEdited(undefined)}
            footer={null}
            title={edited && props.nameOf(edited)}
            destroyOnHidden
          >
            {edited && <EditRule {...props} rule={edited} done={() => setEdited(undefined)} />}
          </Modal>
        </>
      )}
    </Loaded>
  );
}

interface RuleValues {
  threshold?: number;
  severity: number;
}

function EditRule<R extends AlarmRule>({ rule, done, ...props }: Props<R> & { rule: R; done: () => void }) {
  const { t } = useTranslation();
  const client = useQueryClient();
  const [form] = Form.useForm<RuleValues>();
  const errors = useServerErrors(form, "rule");
  const save = useMutation({
    mutationFn: (v: RuleValues) =>
      props.set({
        kind: rule.kind,
        enabled: rule.enabled,
        threshold: BigInt(v.threshold ?? 0),
        severity: v.severity,
      }),
    onSuccess: async () => {
      done();
      await client.invalidateQueries({ queryKey: props.queryKey });
    },
    onError: errors.show,
  });
  const unit = props.unitOf(rule);
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{ threshold: Number(rule.threshold), severity: rule.severity }}
      onFinish={(v) => {
        errors.show(undefined);
        save.mutate(v);
      }}
    >
      {errors.alert}
      {unit && (
        <Form.Item name="threshold" label={`${t("poolops.threshold")} (${unit})`}>
          <InputNumber min={0} precision={0} className="yh-w-200" />
        </Form.Item>
      )}
      <Form.Item name="severity" label={t("poolops.severity")}>
        <Select options={[1, 2, 3].map((value) => ({ value, label: t(`alarm.severities.${severityOf(value)}`) }))} />
      </Form.Item>
      <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save">
        {t("common.save")}
      </Button>
    </Form>
  );
}
