import { ImportOutlined } from "@ant-design/icons";
import { useMutation, useQuery } from "@tanstack/react-query";
import { App, Button, Checkbox, Form, Input, InputNumber, Select, Upload } from "antd";
import { useMemo, useRef } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate, useSearchParams } from "react-router";
import { call, newRequestId } from "../api";
import { Copyable, PageHead, Panel } from "../components/bits";
import { usePresetTitle } from "../components/usePresetTitle";
import { useServerErrors } from "../components/useServerErrors";
import { WeightSliders } from "../components/WeightSliders";
import { FailurePolicy, SuccessPolicy } from "../gen/yunhe/jobs/v1/jobs_pb";
import { messageOf } from "../lib/errors";
import {
  digitsExample,
  emptyJob,
  formField,
  fromSpec,
  type JobForm,
  specFromJson,
  specToJson,
  toSpec,
} from "../lib/jobform";
import { sameWeights } from "../lib/weights";
import { usePolicies } from "../queries";
import { useClients } from "../session";
import { JobRules } from "./submit/JobRules";
import { Pairs } from "./submit/Pairs";
import { Tasks } from "./submit/Tasks";
import { WhatWould } from "./submit/WhatWould";

export function SubmitJob() {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { jobs } = useClients();
  const navigate = useNavigate();
  const [params] = useSearchParams();
  const from = params.get("from");
  const [form] = Form.useForm<JobForm>();
  const errors = useServerErrors(form, "job", formField);
  // One ID per form: pressing the button twice submits one job.
  const requestId = useRef(newRequestId());

  const fill = (values: JobForm) => {
    requestId.current = newRequestId();
    errors.show(undefined);
    form.resetFields();
    form.setFieldsValue(values);
  };
  useQuery({
    queryKey: ["job-template", from],
    queryFn: async ({ signal }) => {
      const job = await jobs.getJob({ jobId: from ?? "" }, call(signal));
      if (job.spec) fill(fromSpec(job.spec));
      return job.jobId;
    },
    enabled: from !== null,
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
  });
  const submit = useMutation({
    mutationFn: (values: JobForm) => jobs.submitJob({ requestId: requestId.current, job: toSpec(values) }, call()),
    onSuccess: (job) => {
      void message.success(t("submit.done", { name: job.spec?.name ?? job.jobId }));
      void navigate(`/jobs/${job.jobId}`);
    },
    onError: errors.show,
  });
  const read = async (file: File) => {
    try {
      fill(fromSpec(specFromJson(await file.text())));
      void message.success(t("submit.imported", { file: file.name }));
    } catch (error) {
      void message.error(t("submit.importFailed", { file: file.name, problem: messageOf(error) }));
    }
  };
  return (
    <>
      <PageHead
        title={t("submit.title")}
        back={{ to: "/jobs", label: t("nav.jobs") }}
        extra={
          <div className="yh-row">
            <Upload
              accept=".json,application/json"
              showUploadList={false}
              beforeUpload={(file) => {
                void read(file);
                return false;
              }}
            >
              <Button icon={<ImportOutlined />}>{t("submit.import")}</Button>
            </Upload>
            <Button onClick={() => fill(digitsExample())} data-testid="example">
              {t("submit.example")}
            </Button>
            <WhatWould form={form} onError={errors.show} />
            <Button type="primary" onClick={() => form.submit()} loading={submit.isPending} data-testid="submit">
              {t("submit.submit")}
            </Button>
          </div>
        }
      />
      <Form
        form={form}
        layout="vertical"
        className="yh-submit"
        initialValues={emptyJob()}
        scrollToFirstError={{ block: "center", focus: true }}
        onValuesChange={() => {
          requestId.current = newRequestId();
        }}
        onFinish={() => {
          errors.show(undefined);
          // Values of fields not drawn (tasks folded away) are part of the job.
          submit.mutate(form.getFieldsValue(true) as JobForm);
        }}
      >
        <div className="yh-submit-main">
          {errors.alert}
          <Panel title={t("submit.general")}>
            <div className="yh-cols-2">
              <Form.Item
                name="name"
                label={t("submit.taskName")}
                rules={[
                  { required: true, message: t("form.required") },
                  { max: 32, message: t("form.max", { count: 32 }) },
                ]}
              >
                <Input autoFocus />
              </Form.Item>
              <Form.Item name="desc" label={t("submit.desc")}>
                <Input />
              </Form.Item>
            </div>
          </Panel>
          <Tasks />
          <Panel title={t("submit.policies")}>
            <div className="yh-cols-4">
              <Form.Item name="successPolicy" label={t("submit.successPolicy")}>
                <Select
                  options={[
                    { value: SuccessPolicy.ALL, label: t("submit.successAll") },
                    { value: SuccessPolicy.ANY, label: t("submit.successAny") },
                  ]}
                />
              </Form.Item>
              <Form.Item name="failurePolicy" label={t("submit.failurePolicy")}>
                <Select
                  options={[
                    { value: FailurePolicy.ANY, label: t("submit.failureAny") },
                    { value: FailurePolicy.ALL, label: t("submit.failureAll") },
                  ]}
                />
              </Form.Item>
              <Form.Item name="maxRetries" label={t("submit.maxRetries")}>
                <InputNumber min={0} max={100} precision={0} />
              </Form.Item>
              <Form.Item name="priority" label={t("submit.priority")} tooltip={t("submit.priorityHelp")}>
                <InputNumber min={-100} max={100} precision={0} />
              </Form.Item>
            </div>
            <Form.Item name="gang" valuePropName="checked" noStyle>
              <Checkbox>{t("submit.gangLong")}</Checkbox>
            </Form.Item>
            <JobRules />
          </Panel>
          <WeightsPanel />
          <Panel title={t("submit.labels")}>
            <Form.Item noStyle>
              <Pairs field="labels" nameLabel={t("submit.label")} valueLabel={t("submit.value")} />
            </Form.Item>
          </Panel>
        </div>
        <Preview />
      </Form>
    </>
  );
}

function WeightsPanel() {
  const { t } = useTranslation();
  const form = Form.useFormInstance<JobForm>();
  const own = Form.useWatch("ownWeights", form) ?? false;
  const weights = Form.useWatch("policyWeights", { form, preserve: true }) ?? {};
  const { data } = usePolicies();
  const presetTitle = usePresetTitle();
  const preset = data?.presets.find((p) => sameWeights(p.weights, weights));
  if (!data) return null;
  return (
    <Panel
      title={t("submit.weights")}
      extra={
        <Select
          className="yh-w-200"
          aria-label={t("policy.preset")}
          value={own ? (preset?.name ?? "own") : "platform"}
          onChange={(name) => {
            const chosen = data.presets.find((p) => p.name === name);
            form.setFieldsValue({
              ownWeights: name !== "platform",
              ...(chosen ? { policyWeights: { ...chosen.weights } } : {}),
            });
          }}
          options={[
            { value: "platform", label: t("submit.platformWeights") },
            ...data.presets.map((p) => ({ value: p.name, label: presetTitle(p.name) })),
            { value: "own", label: t("policy.own") },
          ]}
        />
      }
    >
      <Form.Item name="ownWeights" hidden valuePropName="checked">
        <Checkbox />
      </Form.Item>
      {own ? (
        <Form.Item name="policyWeights" noStyle>
          <WeightSliders policies={data.policies} />
        </Form.Item>
      ) : (
        <p className="yh-muted yh-flat">{t("submit.platformWeightsHelp")}</p>
      )}
    </Panel>
  );
}

function Preview() {
  const { t } = useTranslation();
  const form = Form.useFormInstance<JobForm>();
  const values = Form.useWatch((all: JobForm) => all, { form, preserve: true });
  const json = useMemo(() => (values?.tasks ? previewOf(values) : ""), [values]);
  return (
    <aside className="yh-submit-side">
      <Panel
        title={t("submit.preview")}
        extra={
          <Copyable text={json}>
            <span />
          </Copyable>
        }
      >
        <pre className="yh-json" data-testid="preview">
          {json}
        </pre>
        <p className="yh-muted yh-flat">{t("submit.previewHelp")}</p>
      </Panel>
    </aside>
  );
}

// What is typed may not be a specification yet: then the problem is the preview.
function previewOf(values: JobForm): string {
  try {
    return specToJson(toSpec({ ...emptyJob(), ...values, tasks: values.tasks.filter(Boolean) }));
  } catch (error) {
    return messageOf(error);
  }
}
