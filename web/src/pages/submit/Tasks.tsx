import { PlusOutlined } from "@ant-design/icons";
import { Button, Checkbox, Collapse, Form, Input, InputNumber, Select } from "antd";
import { useMemo } from "react";
import { useTranslation } from "react-i18next";
import { Panel } from "../../components/bits";
import { parseYuan } from "../../lib/format";
import { emptyTask, type JobForm } from "../../lib/jobform";
import { priceRange, quantityText } from "../../lib/specs";
import { useCenters, useImages, useSpecs } from "../../queries";
import { Files } from "./Files";
import { Pairs } from "./Pairs";
import { TaskData } from "./TaskData";
import { TaskPool } from "./TaskPool";
import { TaskRules } from "./TaskRules";

const ENV_NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

export function Tasks() {
  const { t } = useTranslation();
  const form = Form.useFormInstance<JobForm>();
  return (
    <Form.List name="tasks">
      {(fields, { add, remove }) => (
        <>
          {fields.map(({ key, name }) => (
            <Panel
              key={key}
              title={t("submit.task", { number: name + 1 })}
              extra={
                <div className="yh-row">
                  <Button
                    size="small"
                    type="text"
                    onClick={() => {
                      const task = form.getFieldValue(["tasks", name]) as JobForm["tasks"][number];
                      add({ ...task, name: freeName(form, `${task.name || "task"}-copy`) }, name + 1);
                    }}
                  >
                    {t("submit.duplicate")}
                  </Button>
                  {fields.length > 1 && (
                    <Button size="small" type="text" danger onClick={() => remove(name)}>
                      {t("common.remove")}
                    </Button>
                  )}
                </div>
              }
            >
              <TaskFields index={name} />
            </Panel>
          ))}
          <Button
            block
            type="dashed"
            icon={<PlusOutlined />}
            className="yh-add-task"
            onClick={() => add(emptyTask(freeName(form, `task-${fields.length + 1}`)))}
          >
            {t("submit.addTask")}
          </Button>
        </>
      )}
    </Form.List>
  );
}

// Task names are unique in a job.
function freeName(form: ReturnType<typeof Form.useFormInstance<JobForm>>, wanted: string): string {
  const tasks = (form.getFieldValue("tasks") ?? []) as JobForm["tasks"];
  const taken = new Set(tasks.map((x) => x?.name));
  if (!taken.has(wanted)) return wanted;
  for (let i = 2; ; i++) if (!taken.has(`${wanted}-${i}`)) return `${wanted}-${i}`;
}

function TaskFields({ index }: { index: number }) {
  const { t } = useTranslation();
  const { data: specs } = useSpecs();
  const { data: images } = useImages();
  const { data: centers } = useCenters();
  const required = { required: true, message: t("form.required") };
  const regions = useMemo(() => [...new Set((centers ?? []).map((c) => c.region).filter(Boolean))].sort(), [centers]);
  return (
    <>
      <div className="yh-cols-task">
        <Form.Item
          name={[index, "name"]}
          label={t("submit.taskName")}
          rules={[required, { max: 32, message: t("form.max", { count: 32 }) }]}
        >
          <Input />
        </Form.Item>
        <Form.Item name={[index, "replicaNumber"]} label={t("job.replicas")} rules={[required]}>
          <InputNumber min={1} max={10_000} precision={0} />
        </Form.Item>
      </div>
      <Form.Item
        name={[index, "command"]}
        label={t("submit.command")}
        tooltip={t("submit.commandHelp")}
        rules={[required]}
      >
        <Input.TextArea className="yh-mono" autoSize={{ minRows: 2, maxRows: 14 }} spellCheck={false} />
      </Form.Item>
      <div className="yh-cols-2">
        <Form.Item name={[index, "imageId"]} label={t("submit.image")} rules={[required]}>
          <Select
            showSearch={{ optionFilterProp: "label" }}
            options={(images ?? []).map((i) => ({
              value: i.imageId,
              label: i.name && i.name !== i.imageId ? `${i.imageId} — ${i.name}` : i.imageId,
            }))}
          />
        </Form.Item>
        <Form.Item name={[index, "resourceSpecId"]} label={t("submit.spec")} rules={[required]}>
          <Select
            showSearch={{ optionFilterProp: "search" }}
            options={(specs ?? []).map((s) => ({
              value: s.resourceSpecId,
              search: `${s.resourceSpecId} ${s.resourceSpecName}`,
              label: (
                <span className="yh-spec-option">
                  <b>{s.resourceSpecId}</b>
                  <span>{quantityText(s.resourceQuantity)}</span>
                  <em className="yh-num">{t("submit.perHour", { price: priceRange(s) })}</em>
                </span>
              ),
            }))}
          />
        </Form.Item>
      </div>
      <Collapse
        ghost
        size="small"
        className="yh-more-options"
        items={[
          {
            key: "more",
            label: t("submit.more"),
            // Drawn from the start, so that the server's errors find their fields.
            forceRender: true,
            children: (
              <>
                <div className="yh-cols-4">
                  <Form.Item
                    name={[index, "timeoutSeconds"]}
                    label={t("submit.timeout")}
                    tooltip={t("submit.timeoutHelp")}
                  >
                    <InputNumber
                      min={0}
                      max={2_592_000}
                      precision={0}
                      suffix={t("submit.seconds")}
                      placeholder={t("submit.noLimit")}
                    />
                  </Form.Item>
                  <Form.Item
                    name={[index, "expectedSeconds"]}
                    label={t("submit.expected")}
                    tooltip={t("submit.expectedHelp")}
                  >
                    <InputNumber min={0} precision={0} suffix={t("submit.seconds")} placeholder="3600" />
                  </Form.Item>
                  <Form.Item
                    name={[index, "stopGraceSeconds"]}
                    label={t("submit.grace")}
                    tooltip={t("submit.graceHelp")}
                  >
                    <InputNumber min={0} max={600} precision={0} suffix={t("submit.seconds")} placeholder="10" />
                  </Form.Item>
                  <Form.Item name={[index, "scratchMib"]} label={t("submit.scratch")} tooltip={t("submit.scratchHelp")}>
                    <InputNumber min={0} precision={0} suffix="MiB" placeholder="64" />
                  </Form.Item>
                </div>
                <div className="yh-cols-4">
                  <Form.Item name={[index, "centers"]} label={t("submit.onlyCenters")}>
                    <Select
                      mode="multiple"
                      allowClear
                      placeholder={t("submit.any")}
                      options={(centers ?? []).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
                    />
                  </Form.Item>
                  <Form.Item name={[index, "regions"]} label={t("submit.onlyRegions")}>
                    <Select
                      mode="multiple"
                      allowClear
                      placeholder={t("submit.any")}
                      options={regions.map((r) => ({ value: r, label: r }))}
                    />
                  </Form.Item>
                  <Form.Item name={[index, "minSecurityGrade"]} label={t("submit.minGrade")}>
                    <InputNumber min={0} max={5} precision={0} placeholder="0" />
                  </Form.Item>
                  <Form.Item
                    name={[index, "maxPrice"]}
                    label={t("submit.maxPrice")}
                    rules={[
                      {
                        validator: (_, v?: string) =>
                          v && parseYuan(v) === undefined
                            ? Promise.reject(new Error(t("form.yuan")))
                            : Promise.resolve(),
                      },
                    ]}
                  >
                    <Input prefix="¥" suffix="/h" placeholder={t("submit.noLimit")} />
                  </Form.Item>
                </div>
                <TaskRules index={index} />
                <TaskData index={index} />
                <TaskPool index={index} />
                <Form.Item name={[index, "network"]} valuePropName="checked">
                  <Checkbox>{t("submit.network")}</Checkbox>
                </Form.Item>
                <div className="yh-cols-2">
                  <Form.Item label={t("submit.env")}>
                    <Pairs
                      field={[index, "env"]}
                      nameLabel={t("submit.variable")}
                      valueLabel={t("submit.value")}
                      pattern={ENV_NAME}
                    />
                  </Form.Item>
                  <Form.Item name={[index, "files"]} label={t("submit.files")} tooltip={t("submit.filesHelp")}>
                    <Files />
                  </Form.Item>
                </div>
              </>
            ),
          },
        ]}
      />
    </>
  );
}
