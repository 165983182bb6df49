// The compute identifier of a resource: issued, verified, revoked.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Alert, App, Button, Descriptions, Form, Input, Modal, Select } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Copyable, Loaded, Moment, Panel, Tag } from "../../components/bits";
import { useServerErrors } from "../../components/useServerErrors";
import { type Identifier, IdentifierStatus, type Resource } from "../../gen/yunhe/registry/v1/resource_pb";
import { messageOf } from "../../lib/errors";
import { NONE } from "../../lib/format";
import { useClients, useSession } from "../../session";

export function IdentifierPanel({ resource: r }: { resource: Resource }) {
  const { t } = useTranslation();
  const { can } = useSession();
  const { resources } = useClients();
  const issued = useQuery({
    queryKey: ["resources", "identifiers", r.resourceId, r.identifier],
    queryFn: async ({ signal }) =>
      (await resources.listIdentifiers({ resourceId: r.resourceId, pageSize: 100 }, call(signal))).identifiers,
  });
  const [open, setOpen] = useState<"issue" | "revoke">();
  const close = () => setOpen(undefined);
  const write = can("registry.write");
  return (
    <Panel
      title={t("identifier.title")}
      extra={
        write &&
        (r.identifier ? (
          <Button size="small" danger onClick={() => setOpen("revoke")}>
            {t("identifier.revoke")}
          </Button>
        ) : (
          <Button size="small" onClick={() => setOpen("issue")} data-testid="issue">
            {t("identifier.issue")}
          </Button>
        ))
      }
    >
      <Loaded query={issued} rows={2}>
        {(list) =>
          list.length === 0 ? (
            <span className="yh-muted">{t("identifier.none")}</span>
          ) : (
            list.map((x) => <One key={x.identifier} identifier={x} />)
          )
        }
      </Loaded>
      <Modal open={open === "issue"} onCancel={close} footer={null} title={t("identifier.issueTitle")} destroyOnHidden>
        <Issue resource={r} onClose={close} />
      </Modal>
      <Modal
        open={open === "revoke"}
        onCancel={close}
        footer={null}
        title={t("identifier.revokeTitle")}
        destroyOnHidden
      >
        <Revoke identifier={r.identifier} onClose={close} />
      </Modal>
    </Panel>
  );
}

function One({ identifier: x }: { identifier: Identifier }) {
  const { t } = useTranslation();
  const { resources } = useClients();
  const verify = useMutation({
    mutationFn: () =>
      resources.verifyIdentifier({ identifier: x.identifier, registrationCode: x.registrationCode }, call()),
  });
  const v = verify.data;
  const good = v?.wellFormed && v.codeValid && v.status === IdentifierStatus.VALID;
  return (
    <div className="yh-identifier">
      <div className="yh-row">
        <Copyable text={x.identifier} />
        <Tag tone={x.revokedAt ? "bad" : "good"} text={t(x.revokedAt ? "identifier.revoked" : "identifier.valid")} />
        <Button size="small" loading={verify.isPending} onClick={() => verify.mutate()}>
          {t("identifier.verify")}
        </Button>
      </div>
      {v && (
        <Alert
          type={good ? "success" : "warning"}
          showIcon
          title={
            good
              ? t("identifier.verified")
              : [v.problem, v.codeProblem, v.revocationReason].filter(Boolean).join(" · ") ||
                t("identifier.notVerified")
          }
        />
      )}
      {verify.error && <Alert type="error" showIcon title={messageOf(verify.error)} />}
      <Descriptions
        size="small"
        column={{ xs: 1, md: 2, xl: 3 }}
        items={[
          { key: "city", label: t("identifier.city"), children: x.form?.city || NONE },
          { key: "industry", label: t("identifier.industry"), children: x.form?.industry || NONE },
          { key: "enterprise", label: t("identifier.enterprise"), children: x.form?.enterprise || NONE },
          { key: "capability", label: t("identifier.capability"), children: x.form?.computeCapability || NONE },
          { key: "zone", label: t("identifier.zone"), children: x.availabilityZone || NONE },
          { key: "issued", label: t("identifier.issuedAt"), children: <Moment at={x.issuedAt} long /> },
          ...(x.revokedAt
            ? [
                { key: "revoked", label: t("identifier.revokedAt"), children: <Moment at={x.revokedAt} long /> },
                { key: "why", label: t("identifier.reason"), children: x.revocationReason },
              ]
            : []),
        ]}
      />
      {x.registrationCode && (
        <p className="yh-code-line">
          {t("identifier.code")}: <Copyable text={x.registrationCode} />
        </p>
      )}
    </div>
  );
}

const RESOURCE_TYPES = ["GC", "IC", "SC", "QC"] as const;
const SERVICE_TYPES = ["CL", "BM", "CN", "PX"] as const;

interface IssueValues {
  city?: string;
  industry?: string;
  enterprise?: string;
  resourceType?: string;
  dataCenter?: string;
  serviceType?: string;
  computeCapability?: string;
  storageCapacity?: string;
  networkConfiguration?: string;
  chipType?: string;
  chipNumber?: string;
  availabilityZone?: string;
}

function Issue({ resource: r, onClose }: { resource: Resource; onClose: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { resources } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<IssueValues>();
  const errors = useServerErrors(form, "form");
  const issue = useMutation({
    mutationFn: ({ availabilityZone, ...v }: IssueValues) =>
      resources.issueIdentifier(
        { resourceId: r.resourceId, form: v, availabilityZone: availabilityZone ?? "" },
        call(),
      ),
    onSuccess: async () => {
      void message.success(t("identifier.issued"));
      onClose();
      await client.invalidateQueries({ queryKey: ["resources"] });
    },
    onError: errors.show,
  });
  const required = [{ required: true, message: t("form.required") }];
  const text = (name: keyof IssueValues, placeholder: string, rules = required) => (
    <Form.Item name={name} label={t(`identifier.fields.${name}`)} rules={rules}>
      <Input autoComplete="off" placeholder={placeholder} />
    </Form.Item>
  );
  return (
    <Form
      form={form}
      layout="vertical"
      onFinish={(v) => {
        errors.show(undefined);
        issue.mutate(v);
      }}
    >
      {errors.alert}
      <p className="yh-muted">{t("identifier.issueHelp")}</p>
      <div className="yh-cols-2">
        {text("city", "520100")}
        {text("industry", "I65")}
        {text("enterprise", "91520100MA6DXXXXXX")}
        <Form.Item name="resourceType" label={t("identifier.fields.resourceType")} rules={required}>
          <Select options={RESOURCE_TYPES.map((v) => ({ value: v, label: t(`identifier.resourceTypes.${v}`) }))} />
        </Form.Item>
        {text("dataCenter", "GZ01")}
        <Form.Item name="serviceType" label={t("identifier.fields.serviceType")} rules={required}>
          <Select options={SERVICE_TYPES.map((v) => ({ value: v, label: t(`identifier.serviceTypes.${v}`) }))} />
        </Form.Item>
        {text("computeCapability", "H989T", [])}
        {text("storageCapacity", "80G", [])}
        {text("networkConfiguration", "R400G", [])}
        {text("chipType", "GPU", [])}
        {text("chipNumber", "", [])}
        {text("availabilityZone", "gz-1")}
      </div>
      <div className="yh-row">
        <Button type="primary" htmlType="submit" loading={issue.isPending} data-testid="issue-send">
          {t("identifier.issue")}
        </Button>
        <Button onClick={onClose}>{t("common.cancel")}</Button>
      </div>
    </Form>
  );
}

function Revoke({ identifier, onClose }: { identifier: string; onClose: () => void }) {
  const { t } = useTranslation();
  const { resources } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<{ reason: string }>();
  const errors = useServerErrors(form, "");
  const revoke = useMutation({
    mutationFn: ({ reason }: { reason: string }) => resources.revokeIdentifier({ identifier, reason }, call()),
    onSuccess: async () => {
      onClose();
      await client.invalidateQueries({ queryKey: ["resources"] });
    },
    onError: errors.show,
  });
  return (
    <Form form={form} layout="vertical" onFinish={(v) => revoke.mutate(v)}>
      {errors.alert}
      <p>{t("identifier.revokeHelp")}</p>
      <Form.Item
        name="reason"
        label={t("identifier.reason")}
        rules={[{ required: true, whitespace: true, message: t("form.required") }]}
      >
        <Input autoFocus maxLength={80} />
      </Form.Item>
      <div className="yh-row">
        <Button type="primary" danger htmlType="submit" loading={revoke.isPending} data-testid="revoke-send">
          {t("identifier.revoke")}
        </Button>
        <Button onClick={onClose}>{t("common.cancel")}</Button>
      </div>
    </Form>
  );
}
