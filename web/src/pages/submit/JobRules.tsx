import { MinusCircleOutlined, PlusOutlined } from "@ant-design/icons";
import { Button, Checkbox, Collapse, DatePicker, Form, Input, InputNumber, Select } from "antd";
import { useTranslation } from "react-i18next";
import { useReason } from "../../components/useReason";
import type { JobForm } from "../../lib/jobform";
import { useOrigins } from "../network/Paths";

/** Why runs fail, as rules of retries name it. */
const REASONS = ["exit", "signal", "oom", "wall_time", "start_failed", "lost", "refused", "reclaimed", "pool_lost"];

/** When a job may run, near and beside what, and what happens after failures; folded. */
export function JobRules() {
  const { t } = useTranslation();
  const form = Form.useFormInstance<JobForm>();
  const reason = useReason();
  const origins = useOrigins();
  const gang = Form.useWatch("gang", form) ?? false;
  return (
    <Collapse
      ghost
      size="small"
      className="yh-more-options"
      items={[
        {
          key: "rules",
          label: t("submit.jobRules"),
          forceRender: true,
          children: (
            <>
              <div className="yh-cols-2">
                <Form.Item name="notBefore" label={t("submit.notBefore")}>
                  <DatePicker showTime className="yh-wide" />
                </Form.Item>
                <Form.Item name="deadline" label={t("submit.deadline")} tooltip={t("submit.deadlineHelp")}>
                  <DatePicker showTime className="yh-wide" />
                </Form.Item>
                <Form.Item name="nearJob" label={t("submit.nearJob")} tooltip={t("submit.nearJobHelp")}>
                  <Input placeholder="job_…" autoComplete="off" />
                </Form.Item>
                <Form.Item name="originId" label={t("submit.origin")} tooltip={t("submit.originHelp")}>
                  <Select
                    options={[
                      { value: "", label: t("submit.originOfTenant") },
                      ...(origins.data ?? []).map((o) => ({ value: o.originId, label: o.name || o.originId })),
                    ]}
                  />
                </Form.Item>
                <Form.Item name="groups" label={t("submit.groups")} tooltip={t("submit.groupsHelp")}>
                  <Select mode="tags" open={false} suffixIcon={null} tokenSeparators={[",", " "]} />
                </Form.Item>
              </div>
              <Form.Item name="elastic" valuePropName="checked" className="yh-flat">
                <Checkbox disabled={!gang}>{t("submit.elastic")}</Checkbox>
              </Form.Item>
              <Form.Item name="restartWhole" valuePropName="checked" className="yh-flat">
                <Checkbox disabled={!gang}>{t("submit.restartWhole")}</Checkbox>
              </Form.Item>
              <Form.Item name="distributed" valuePropName="checked" className="yh-flat">
                <Checkbox>{t("submit.distributed")}</Checkbox>
              </Form.Item>
              <Form.Item name="noPreemption" valuePropName="checked">
                <Checkbox>{t("submit.noPreemption")}</Checkbox>
              </Form.Item>
              <Form.Item label={t("submit.retryRules")} tooltip={t("submit.retryRulesHelp")}>
                <Form.List name="retryRules">
                  {(fields, { add, remove }) => (
                    <>
                      {fields.map(({ key, name }) => (
                        <div className="yh-row yh-origin" key={key}>
                          <Form.Item name={[name, "reasons"]} noStyle>
                            <Select
                              mode="tags"
                              className="yh-w-240"
                              placeholder={t("submit.anyReason")}
                              aria-label={t("submit.reasons")}
                              options={REASONS.map((value) => ({ value, label: reason(value) }))}
                            />
                          </Form.Item>
                          <Form.Item name={[name, "exitCodes"]} noStyle>
                            <Select
                              mode="tags"
                              open={false}
                              suffixIcon={null}
                              className="yh-w-140"
                              placeholder={t("submit.anyExitCode")}
                              aria-label={t("submit.exitCodes")}
                              tokenSeparators={[",", " "]}
                            />
                          </Form.Item>
                          <Form.Item name={[name, "maxRetries"]} noStyle>
                            <InputNumber
                              min={0}
                              max={100}
                              precision={0}
                              prefix="×"
                              placeholder="0"
                              aria-label={t("submit.maxRetries")}
                            />
                          </Form.Item>
                          <Form.Item name={[name, "backoffSeconds"]} noStyle>
                            <InputNumber
                              min={0}
                              max={86_400}
                              precision={0}
                              suffix={t("submit.seconds")}
                              placeholder={t("submit.backoff")}
                              aria-label={t("submit.backoff")}
                            />
                          </Form.Item>
                          <Remove onClick={() => remove(name)} />
                        </div>
                      ))}
                      <Add onClick={() => add({ reasons: [], exitCodes: [], maxRetries: 1 })} />
                    </>
                  )}
                </Form.List>
              </Form.Item>
            </>
          ),
        },
      ]}
    />
  );
}

export function Remove({ onClick }: { onClick: () => void }) {
  const { t } = useTranslation();
  return (
    <Button type="text" size="small" icon={<MinusCircleOutlined />} aria-label={t("common.remove")} onClick={onClick} />
  );
}

export function Add({ onClick }: { onClick: () => void }) {
  const { t } = useTranslation();
  return (
    <Button size="small" type="dashed" icon={<PlusOutlined />} onClick={onClick}>
      {t("common.add")}
    </Button>
  );
}
