import { useQuery } from "@tanstack/react-query";
import { Checkbox, Form, Input, InputNumber, Select } from "antd";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import type { QosForm } from "../../lib/jobform";
import { useCenters } from "../../queries";
import { useClients } from "../../session";
import { Add, Remove } from "./JobRules";

/** Numeric precisions, as the contract writes them. */
const PRECISIONS = ["FP64", "FP32", "FP16", "INT8"];

/** What a task reads and where that is, what quality it needs, and in what precision it computes. */
export function TaskData({ index }: { index: number }) {
  const { t } = useTranslation();
  const { data: centers } = useCenters();
  const volumes = useVolumes();
  const required = { required: true, message: t("form.required") };
  const target = (name: Exclude<keyof QosForm, "required">, suffix: string, most: number) => (
    <Form.Item name={[index, "qos", name]} label={t(`submit.qos.${name}`)}>
      <InputNumber min={0} max={most} suffix={suffix} placeholder={t("submit.any")} />
    </Form.Item>
  );
  return (
    <>
      <Form.Item label={t("submit.inputs")} tooltip={t("submit.inputsHelp")}>
        <Form.List name={[index, "inputs"]}>
          {(fields, { add, remove }) => (
            <>
              {fields.map(({ key, name }) => (
                <div className="yh-row yh-origin" key={key}>
                  <Form.Item name={[name, "name"]} noStyle rules={[required]}>
                    <Input className="yh-w-180" placeholder="s3://bucket/path" aria-label={t("submit.inputName")} />
                  </Form.Item>
                  <Form.Item name={[name, "sizeMib"]} noStyle>
                    <InputNumber min={0} suffix="MiB" aria-label={t("submit.inputSize")} />
                  </Form.Item>
                  <Form.Item name={[name, "centers"]} noStyle>
                    <Select
                      mode="multiple"
                      className="yh-w-180"
                      placeholder={t("submit.inputOutside")}
                      aria-label={t("submit.inputCenters")}
                      options={(centers ?? []).map((c) => ({ value: c.aiCenterId, label: c.name || c.aiCenterId }))}
                    />
                  </Form.Item>
                  <Form.Item name={[name, "volume"]} noStyle>
                    <Select
                      allowClear
                      className="yh-w-180"
                      placeholder={t("submit.inputVolume")}
                      aria-label={t("submit.inputVolume")}
                      options={volumes}
                    />
                  </Form.Item>
                  <Form.Item name={[name, "stays"]} valuePropName="checked" noStyle>
                    <Checkbox>{t("submit.stays")}</Checkbox>
                  </Form.Item>
                  <Remove onClick={() => remove(name)} />
                </div>
              ))}
              <Add onClick={() => add({ name: "", centers: [], stays: false })} />
            </>
          )}
        </Form.List>
      </Form.Item>
      <div className="yh-cols-4">
        {target("latencyMs", "ms", 1_000_000)}
        {target("jitterMs", "ms", 1_000_000)}
        {target("lossPercent", "%", 100)}
        {target("bandwidthMbps", "Mbit/s", 1_000_000_000)}
        {target("finishSeconds", t("submit.seconds"), 2_592_000)}
        {target("availabilityPercent", "%", 100)}
        <Form.Item name={[index, "precision"]} label={t("submit.precision")} tooltip={t("submit.precisionHelp")}>
          <Select
            options={[{ value: "", label: t("submit.any") }, ...PRECISIONS.map((value) => ({ value, label: value }))]}
          />
        </Form.Item>
      </div>
      <Form.Item name={[index, "qos", "required"]} valuePropName="checked">
        <Checkbox>{t("submit.qosRequired")}</Checkbox>
      </Form.Item>
    </>
  );
}

/** The volumes there are, for lists to choose from. */
export function useVolumes(): { value: string; label: string }[] {
  const { volumes } = useClients();
  const { data } = useQuery({
    queryKey: ["volumes", "all"],
    queryFn: async ({ signal }) => (await volumes.listVolumes({ pageSize: 1000 }, call(signal))).volumes,
    staleTime: 10_000,
  });
  return (data ?? []).map((v) => ({ value: v.volumeId, label: `${v.name} · ${v.aiCenterId}` }));
}
