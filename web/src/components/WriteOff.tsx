// Writes off a job's runs at centers that are gone. It is offered only while
// the platform would do it.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App, Button, Checkbox, Form, Input, Modal, Select } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../api";
import type { Job } from "../gen/yunhe/jobs/v1/jobs_pb";
import { type Lost, lostRuns } from "../lib/lost";
import { hasEnded } from "../lib/states";
import { useCenters, useGateways } from "../queries";
import { useClients, useSession } from "../session";
import { Moment } from "./bits";
import { useServerErrors } from "./useServerErrors";

export function WriteOffButton({ job }: { job: Job }) {
  const { can } = useSession();
  if (hasEnded(job.state) || !can("adapters.write")) return null;
  return <Offer job={job} />;
}

// Centers and gateways are read only for jobs that may have something to write off.
function Offer({ job }: { job: Job }) {
  const { t } = useTranslation();
  const { data: centers } = useCenters();
  const { data: gateways } = useGateways();
  const [open, setOpen] = useState(false);
  const lost = lostRuns(job, centers ?? [], gateways, Date.now());
  if (lost.length === 0 && !open) return null;
  return (
    <>
      <Button danger onClick={() => setOpen(true)} data-testid="write-off">
        {t("writeOff.action")}
      </Button>
      <Modal open={open} onCancel={() => setOpen(false)} footer={null} title={t("writeOff.title")} destroyOnHidden>
        <WriteOffForm job={job} lost={lost} onClose={() => setOpen(false)} />
      </Modal>
    </>
  );
}

interface Values {
  aiCenterId: string;
  reason: string;
  retry: boolean;
}

function WriteOffForm({ job, lost, onClose }: { job: Job; lost: Lost[]; onClose: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { jobs } = useClients();
  const client = useQueryClient();
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "");
  const retries = job.spec?.maxRetries ?? 0;
  const write = useMutation({
    mutationFn: (v: Values) =>
      jobs.writeOffJob(
        { jobId: job.jobId, reason: v.reason.trim(), aiCenterId: v.aiCenterId, retry: retries > 0 && v.retry },
        call(),
      ),
    onSuccess: async () => {
      void message.success(t("writeOff.done"));
      onClose();
      await Promise.all([
        client.invalidateQueries({ queryKey: ["jobs"] }),
        client.invalidateQueries({ queryKey: ["job", job.jobId] }),
        client.invalidateQueries({ queryKey: ["job-cost", job.jobId] }),
      ]);
    },
    onError: errors.show,
  });
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{ aiCenterId: "", reason: "", retry: false }}
      onFinish={(v) => {
        errors.show(undefined);
        write.mutate(v);
      }}
    >
      <p>{t("writeOff.help")}</p>
      <ul className="yh-plain-list yh-lost">
        {lost.map(({ center, runs }) => (
          <li key={center.aiCenterId}>
            <b>{center.name || center.aiCenterId}</b>: {t("writeOff.runs", { count: runs })}{" "}
            <span className="yh-muted">
              {t("center.lastSeen")} <Moment at={center.lastSeenAt} />
            </span>
          </li>
        ))}
        {lost.length === 0 && <li>{t("writeOff.back")}</li>}
      </ul>
      {errors.alert}
      <Form.Item name="aiCenterId" label={t("writeOff.where")} hidden={lost.length < 2}>
        <Select
          options={[
            { value: "", label: t("writeOff.everywhere") },
            ...lost.map(({ center }) => ({ value: center.aiCenterId, label: center.name || center.aiCenterId })),
          ]}
        />
      </Form.Item>
      <Form.Item
        name="reason"
        label={t("writeOff.reason")}
        extra={t("writeOff.reasonHelp")}
        rules={[
          { required: true, whitespace: true, message: t("form.required") },
          {
            validator: (_, text: string) =>
              new TextEncoder().encode(text.trim()).length < MAX_REASON_BYTES
                ? Promise.resolve()
                : Promise.reject(new Error(t("writeOff.reasonTooLong"))),
          },
        ]}
      >
        <Input autoFocus autoComplete="off" />
      </Form.Item>
      {retries > 0 && (
        <Form.Item name="retry" valuePropName="checked" extra={t("writeOff.retryHelp")}>
          <Checkbox>{t("writeOff.retry")}</Checkbox>
        </Form.Item>
      )}
      <div className="yh-row">
        <Button
          danger
          type="primary"
          htmlType="submit"
          loading={write.isPending}
          disabled={lost.length === 0}
          data-testid="write-off-confirm"
        >
          {t("writeOff.confirm")}
        </Button>
        <Button onClick={onClose}>{t("common.cancel")}</Button>
      </div>
    </Form>
  );
}

const MAX_REASON_BYTES = 128;
