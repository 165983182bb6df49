import { Checkbox, Form, Input, InputNumber, Select } from "antd";
import { useTranslation } from "react-i18next";
import { Dependency_Condition, PlacementRule_Kind } from "../../gen/yunhe/jobs/v1/jobs_pb";
import type { JobForm, TaskForm } from "../../lib/jobform";
import { Add, Remove } from "./JobRules";
import { useVolumes } from "./TaskData";

/** Volumes of a task, tasks it waits for, how far it may be scaled, and where its replicas go. */
export function TaskRules({ index }: { index: number }) {
  const { t } = useTranslation();
  const form = Form.useFormInstance<JobForm>();
  const volumes = useVolumes();
  const tasks = (Form.useWatch("tasks", { form, preserve: true }) ?? []) as (TaskForm | undefined)[];
  const rules = tasks[index]?.rules ?? [];
  const required = { required: true, message: t("form.required") };
  return (
    <>
      <Form.Item label={t("nav.volumes")} tooltip={t("submit.volumesHelp")}>
        <Form.List name={[index, "volumes"]}>
          {(fields, { add, remove }) => (
            <>
              {fields.map(({ key, name }) => (
                <div className="yh-row yh-origin" key={key}>
                  <Form.Item name={[name, "volume"]} noStyle rules={[required]}>
                    <Select
                      className="yh-w-240"
                      showSearch={{ optionFilterProp: "label" }}
                      placeholder={t("volume.volume")}
                      aria-label={t("volume.volume")}
                      options={volumes}
                    />
                  </Form.Item>
                  <Form.Item name={[name, "path"]} noStyle rules={[required]}>
                    <Input className="yh-w-180" placeholder="/data" aria-label={t("submit.mountPath")} />
                  </Form.Item>
                  <Form.Item name={[name, "readOnly"]} valuePropName="checked" noStyle>
                    <Checkbox>{t("submit.readOnly")}</Checkbox>
                  </Form.Item>
                  <Remove onClick={() => remove(name)} />
                </div>
              ))}
              <Add onClick={() => add({ readOnly: false })} />
            </>
          )}
        </Form.List>
      </Form.Item>
      <Form.Item label={t("submit.after")} tooltip={t("submit.afterHelp")}>
        <Form.List name={[index, "after"]}>
          {(fields, { add, remove }) => (
            <>
              {fields.map(({ key, name }) => (
                <div className="yh-row yh-origin" key={key}>
                  <Form.Item name={[name, "task"]} noStyle rules={[required]}>
                    <Select
                      className="yh-w-240"
                      aria-label={t("submit.after")}
                      options={tasks.flatMap((x, i) =>
                        x?.name && i !== index ? [{ value: x.name, label: x.name }] : [],
                      )}
                    />
                  </Form.Item>
                  <Form.Item name={[name, "condition"]} noStyle>
                    <Select
                      className="yh-w-180"
                      aria-label={t("submit.condition")}
                      options={[
                        { value: Dependency_Condition.SUCCEEDED, label: t("submit.conditions.succeeded") },
                        { value: Dependency_Condition.STARTED, label: t("submit.conditions.started") },
                        { value: Dependency_Condition.ENDED, label: t("submit.conditions.ended") },
                      ]}
                    />
                  </Form.Item>
                  <Remove onClick={() => remove(name)} />
                </div>
              ))}
              {tasks.length > 1 ? (
                <Add onClick={() => add({ condition: Dependency_Condition.SUCCEEDED })} />
              ) : (
                <span className="yh-muted">{t("submit.oneTask")}</span>
              )}
            </>
          )}
        </Form.List>
      </Form.Item>
      <Form.Item label={t("submit.placement")} tooltip={t("submit.placementHelp")}>
        <Form.List name={[index, "rules"]}>
          {(fields, { add, remove }) => (
            <>
              {fields.map(({ key, name }) => (
                <div className="yh-row yh-origin" key={key}>
                  <Form.Item name={[name, "kind"]} noStyle rules={[required]}>
                    <Select
                      className="yh-w-140"
                      aria-label={t("submit.placement")}
                      options={[
                        { value: PlacementRule_Kind.SPREAD, label: t("submit.kinds.spread") },
                        { value: PlacementRule_Kind.WITH, label: t("submit.kinds.with") },
                        { value: PlacementRule_Kind.APART, label: t("submit.kinds.apart") },
                      ]}
                    />
                  </Form.Item>
                  <Form.Item name={[name, "over"]} noStyle>
                    <Input className="yh-w-140" placeholder={t("submit.over")} aria-label={t("submit.overLong")} />
                  </Form.Item>
                  <Form.Item name={[name, "ofJob"]} noStyle>
                    <Input className="yh-w-180" placeholder={t("submit.ofJob")} aria-label={t("submit.ofJobLong")} />
                  </Form.Item>
                  <Form.Item name={[name, "ofGroup"]} noStyle>
                    <Input
                      className="yh-w-140"
                      placeholder={t("submit.ofGroup")}
                      aria-label={t("submit.ofGroupLong")}
                    />
                  </Form.Item>
                  {rules[name]?.kind === PlacementRule_Kind.SPREAD && (
                    <Form.Item name={[name, "maxSkew"]} noStyle>
                      <InputNumber
                        min={1}
                        max={10_000}
                        precision={0}
                        prefix="±"
                        placeholder="1"
                        aria-label={t("submit.maxSkew")}
                      />
                    </Form.Item>
                  )}
                  <Form.Item name={[name, "preferred"]} valuePropName="checked" noStyle>
                    <Checkbox>{t("submit.preferred")}</Checkbox>
                  </Form.Item>
                  <Remove onClick={() => remove(name)} />
                </div>
              ))}
              <Add
                onClick={() =>
                  add({ kind: PlacementRule_Kind.SPREAD, over: "", ofJob: "", ofGroup: "", preferred: false })
                }
              />
            </>
          )}
        </Form.List>
      </Form.Item>
      <div className="yh-cols-4">
        <Form.Item name={[index, "minReplicas"]} label={t("submit.minReplicas")} tooltip={t("submit.minReplicasHelp")}>
          <InputNumber min={0} max={10_000} precision={0} placeholder="1" />
        </Form.Item>
        <Form.Item name={[index, "maxReplicas"]} label={t("submit.maxReplicas")} tooltip={t("submit.maxReplicasHelp")}>
          <InputNumber min={0} max={10_000} precision={0} placeholder={t("submit.notScaled")} />
        </Form.Item>
      </div>
    </>
  );
}
