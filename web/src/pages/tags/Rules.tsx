// Rules that set tags by themselves, with a live look at what their expressions come to.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Button, Drawer, Form, Input, InputNumber, Radio, Select, type TableColumnsType, Tooltip } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { CreateButton, Loaded, Moment, Tag as StateTag } from "../../components/bits";
import { ConfirmButton } from "../../components/ConfirmButton";
import { useRested } from "../../components/ExpressionInput";
import { useTagLibrary } from "../../components/ObjectTags";
import { ListTable } from "../../components/Pager";
import { TagExpression } from "../../components/TagExpression";
import { useServerErrors } from "../../components/useServerErrors";
import { ObjectKind, RuleMode, type TagRule, TagStatus } from "../../gen/yunhe/tags/v1/tags_pb";
import { messageOf } from "../../lib/errors";
import { formatCount } from "../../lib/format";
import { kindName, modeName, OBJECT_KINDS, tagTitle } from "../../lib/tags";
import { useClients, useSession } from "../../session";

const EVERY_MS = 5000;

export function Rules() {
  const { t } = useTranslation();
  const { tags } = useClients();
  const { can } = useSession();
  const rules = useQuery({
    queryKey: ["tags", "rules"],
    queryFn: async ({ signal }) => (await tags.listTagRules({}, call(signal))).rules,
    refetchInterval: EVERY_MS,
  });
  const [open, setOpen] = useState<TagRule | "new">();
  const write = can("registry.write");
  const columns: TableColumnsType<TagRule> = [
    {
      title: t("tag.rule"),
      key: "rule",
      width: 230,
      ellipsis: true,
      render: (_, r) => (
        <Button type="link" className="yh-link-cell" onClick={() => setOpen(r)}>
          <span className="yh-job-link">
            <b>{r.title || r.ruleId}</b>
            <small>{r.ruleId}</small>
          </span>
        </Button>
      ),
    },
    {
      title: t("tag.mode"),
      key: "mode",
      width: 130,
      render: (_, r) => {
        const mode = modeName(r.mode);
        return (
          <StateTag
            tone={mode === "automatic" ? "good" : mode === "off" ? "neutral" : "active"}
            text={t(`tag.modes.${mode}`)}
          />
        );
      },
    },
    {
      title: t("tag.sets"),
      key: "sets",
      width: 220,
      ellipsis: true,
      render: (_, r) => (
        <code>
          {r.key} = {r.valueExpression || JSON.stringify(r.value)}
        </code>
      ),
    },
    { title: t("tag.when"), key: "when", ellipsis: true, render: (_, r) => <code>{r.when}</code> },
    {
      title: t("tag.matched"),
      key: "matched",
      width: 90,
      align: "right",
      render: (_, r) => <span className="yh-num">{formatCount(r.matched)}</span>,
    },
    {
      title: t("tag.evaluated"),
      key: "evaluated",
      width: 132,
      render: (_, r) => (
        <>
          <Moment at={r.evaluatedAt} />
          {r.error && (
            <Tooltip title={r.error}>
              <small className="yh-reason yh-bad">{r.error}</small>
            </Tooltip>
          )}
        </>
      ),
    },
  ];
  return (
    <>
      {write && (
        <div className="yh-tab-actions">
          <CreateButton text={t("tag.newRule")} onClick={() => setOpen("new")} testId="new-rule" />
        </div>
      )}
      <Loaded query={rules} rows={6}>
        {(list) => (
          <ListTable
            rowKey="ruleId"
            columns={columns}
            dataSource={list}
            tableLayout="fixed"
            scroll={{ x: 1060 }}
            pageSize={50}
            empty={t("tag.noRules")}
          />
        )}
      </Loaded>
      <Drawer
        open={open !== undefined}
        onClose={() => setOpen(undefined)}
        size={720}
        title={open === "new" ? t("tag.newRule") : open?.ruleId}
        destroyOnHidden
      >
        {open && <RuleForm rule={open === "new" ? undefined : open} write={write} onDone={() => setOpen(undefined)} />}
      </Drawer>
    </>
  );
}

interface Values {
  ruleId: string;
  title: string;
  description: string;
  key: string;
  kinds: number[];
  when: string;
  until: string;
  by: "value" | "expression";
  value: string;
  valueExpression: string;
  holdSeconds: number;
  priority: number;
  mode: RuleMode;
}

function RuleForm({ rule, write, onDone }: { rule?: TagRule; write: boolean; onDone: () => void }) {
  const { t, i18n } = useTranslation();
  const { message } = App.useApp();
  const { tags } = useClients();
  const client = useQueryClient();
  const library = useTagLibrary();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "rule");
  const kinds = Form.useWatch("kinds", form) ?? rule?.kinds ?? [];
  const when = Form.useWatch("when", form) ?? rule?.when ?? "";
  const by = Form.useWatch("by", form) ?? (rule?.valueExpression ? "expression" : "value");
  const kind: ObjectKind = kinds[0] ?? ObjectKind.CENTER;
  const save = useMutation({
    mutationFn: ({ by: way, ...v }: Values) => {
      const next = {
        ...v,
        ruleId: rule?.ruleId ?? v.ruleId,
        value: way === "value" ? v.value : "",
        valueExpression: way === "expression" ? v.valueExpression : "",
        holdSeconds: BigInt(v.holdSeconds ?? 0),
        priority: BigInt(v.priority ?? 0),
        version: rule?.version ?? 0n,
      };
      return rule ? tags.updateTagRule({ rule: next }, call()) : tags.createTagRule({ rule: next }, call());
    },
    onSuccess: async () => {
      void message.success(t("tag.ruleSaved"));
      await client.invalidateQueries({ queryKey: ["tags"] });
      onDone();
    },
    onError: errors.show,
  });
  const required = [{ required: true, message: t("form.required") }];
  return (
    <Form
      form={form}
      layout="vertical"
      disabled={!write}
      scrollToFirstError={{ block: "center", focus: true }}
      initialValues={{
        ...rule,
        title: rule?.title ?? "",
        description: rule?.description ?? "",
        kinds: rule?.kinds ?? [ObjectKind.CENTER],
        when: rule?.when ?? "",
        until: rule?.until ?? "",
        by: rule?.valueExpression ? "expression" : "value",
        value: rule?.value ?? "",
        valueExpression: rule?.valueExpression ?? "",
        holdSeconds: Number(rule?.holdSeconds ?? 0n),
        priority: Number(rule?.priority ?? 0n),
        mode: rule?.mode || RuleMode.AUTOMATIC,
      }}
      onFinish={(v) => {
        errors.show(undefined);
        save.mutate(v);
      }}
    >
      {errors.alert}
      <div className="yh-cols-2">
        <Form.Item
          name="ruleId"
          label={t("registry.id")}
          rules={[...required, { max: 32, message: t("form.max", { count: 32 }) }]}
        >
          <Input disabled={rule !== undefined} autoFocus={!rule} autoComplete="off" />
        </Form.Item>
        <Form.Item name="title" label={t("tag.ruleTitle")}>
          <Input autoComplete="off" />
        </Form.Item>
        <Form.Item name="key" label={t("tag.setsTag")} rules={required}>
          <Select
            showSearch={{ optionFilterProp: "label" }}
            options={(library.data ?? [])
              .filter((x) => x.status !== TagStatus.RETIRED || x.key === rule?.key)
              .map((x) => ({ value: x.key, label: `${tagTitle(x, i18n.language)} (${x.key})` }))}
          />
        </Form.Item>
        <Form.Item name="kinds" label={t("tag.looksAt")}>
          <Select
            mode="multiple"
            options={OBJECT_KINDS.map((k) => ({ value: k, label: t(`tag.kinds.${kindName(k)}`) }))}
          />
        </Form.Item>
      </div>
      <Form.Item name="when" label={t("tag.when")} rules={required}>
        <TagExpression kind={kind} label={t("tag.when")} placeholder={t("tag.whereExample")} disabled={!write} />
      </Form.Item>
      <Preview kinds={kinds.length > 0 ? kinds : [kind]} expression={when} />
      <Form.Item name="until" label={t("tag.until")} extra={t("tag.untilHelp")}>
        <TagExpression kind={kind} label={t("tag.until")} rows={1} disabled={!write} />
      </Form.Item>
      <Form.Item name="by" label={t("tag.valueIs")}>
        <Radio.Group
          options={[
            { value: "value", label: t("tag.fixed") },
            { value: "expression", label: t("tag.computed") },
          ]}
        />
      </Form.Item>
      {by === "value" ? (
        <Form.Item name="value" label={t("tag.value")} rules={required}>
          <Input autoComplete="off" />
        </Form.Item>
      ) : (
        <Form.Item name="valueExpression" label={t("tag.valueExpression")} rules={required}>
          <TagExpression kind={kind} label={t("tag.valueExpression")} rows={1} makesValue disabled={!write} />
        </Form.Item>
      )}
      <div className="yh-cols-2">
        <Form.Item name="holdSeconds" label={t("tag.hold")} extra={t("tag.holdHelp")}>
          <InputNumber min={0} max={86_400} precision={0} />
        </Form.Item>
        <Form.Item name="priority" label={t("tag.priority")} extra={t("tag.priorityHelp")}>
          <InputNumber min={-1000} max={1000} precision={0} />
        </Form.Item>
      </div>
      <Form.Item name="mode" label={t("tag.mode")}>
        <Radio.Group
          options={[RuleMode.AUTOMATIC, RuleMode.RECOMMEND, RuleMode.OFF].map((m) => ({
            value: m,
            label: t(`tag.modes.${modeName(m)}`),
          }))}
        />
      </Form.Item>
      <Form.Item name="description" label={t("tag.description")}>
        <Input.TextArea autoSize={{ minRows: 1, maxRows: 5 }} maxLength={512} />
      </Form.Item>
      {write && (
        <div className="yh-row">
          <Button type="primary" htmlType="submit" loading={save.isPending} data-testid="save-rule">
            {t(rule ? "common.save" : "tag.newRule")}
          </Button>
          {rule && <DeleteRule rule={rule} onDone={onDone} />}
        </div>
      )}
    </Form>
  );
}

const SHOWN = 10;

// Which objects meet the condition now.
function Preview({ kinds, expression }: { kinds: number[]; expression: string }) {
  const { t } = useTranslation();
  const { tags } = useClients();
  const rested = useRested(expression.trim(), 600);
  const found = useQuery({
    queryKey: ["tags", "preview", kinds, rested],
    queryFn: async ({ signal }) => {
      const checked = await Promise.all(
        kinds.map((kind) => tags.checkExpression({ expression: rested, kind }, call(signal))),
      );
      if (checked.some((c) => c.problems.length > 0)) return null; // asking for objects would be refused
      return tags.listTaggedObjects({ selector: { kinds, expression: rested }, pageSize: SHOWN }, call(signal));
    },
    enabled: rested !== "",
    retry: false,
  });
  if (rested === "" || rested !== expression.trim() || found.error || !found.data) return null;
  const { objects, nextPageToken } = found.data;
  return (
    <p className="yh-preview" data-testid="rule-preview" aria-live="polite">
      {objects.length === 0
        ? t("tag.meetsNone")
        : t(nextPageToken ? "tag.meetsMore" : "tag.meets", {
            count: objects.length,
            names: objects.map((o) => o.name || o.object).join(", "),
          })}
    </p>
  );
}

function DeleteRule({ rule, onDone }: { rule: TagRule; onDone: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { tags } = useClients();
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: () => tags.deleteTagRule({ ruleId: rule.ruleId }, call()),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ["tags"] });
      onDone();
    },
    onError: (e) => void message.error(messageOf(e)),
  });
  return (
    <ConfirmButton
      title={t("tag.deleteRule", { id: rule.ruleId })}
      content={t("tag.deleteRuleHelp", { shown: formatCount(rule.matched) })}
      act={() => remove.mutateAsync()}
      pending={remove.isPending}
    />
  );
}
