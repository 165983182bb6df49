import { useQuery } from "@tanstack/react-query";
import { Checkbox, Form, Input, InputNumber, Select } from "antd";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { useClients } from "../../session";

const APIS = [
  { value: "opencl", label: "OpenCL" },
  { value: "cuda", label: "CUDA" },
];

/** Shares of the accelerator pool that each run of a task has. */
export function TaskPool({ index }: { index: number }) {
  const { t } = useTranslation();
  const { pool } = useClients();
  const { data } = useQuery({
    queryKey: ["pool", "choices"],
    queryFn: async ({ signal }) => {
      const [groups, specs] = await Promise.all([
        pool.listPoolGroups({}, call(signal)),
        pool.listSliceSpecs({}, call(signal)),
      ]);
      return { groups: groups.groups.map((g) => g.groupId), specs: specs.specs.map((s) => s.specId) };
    },
    staleTime: 10_000,
  });
  const number = (name: string, suffix: string | undefined, least: number, most: number) => (
    <Form.Item name={[index, "pool", name]} label={t(`submit.pool.${name as "cards"}`)}>
      <InputNumber min={least} max={most} suffix={suffix} />
    </Form.Item>
  );
  const choice = (name: "specId" | "groupId" | "api", options: { value: string; label: string }[]) => (
    <Form.Item name={[index, "pool", name]} label={t(`submit.pool.${name}`)}>
      <Select allowClear options={options} placeholder={name === "api" ? "OpenCL" : undefined} />
    </Form.Item>
  );
  const own = (ids: string[] | undefined) => (ids ?? []).map((value) => ({ value, label: value }));
  const word = (name: "model" | "nodeId" | "affinity" | "antiAffinity", help?: string) => (
    <Form.Item name={[index, "pool", name]} label={t(`submit.pool.${name}`)} tooltip={help}>
      <Input placeholder={help ? undefined : t("submit.any")} />
    </Form.Item>
  );
  const check = (name: "weighted" | "physical" | "acrossNodes" | "local") => (
    <Form.Item name={[index, "pool", name]} valuePropName="checked" noStyle>
      <Checkbox title={name === "local" ? t("submit.pool.localHelp") : undefined}>{t(`submit.pool.${name}`)}</Checkbox>
    </Form.Item>
  );
  return (
    <Form.Item label={t("submit.pool.title")} tooltip={t("submit.pool.help")}>
      <div className="yh-cols-4" data-testid="task-pool">
        {number("computePercent", "%", 1, 100)}
        {number("memoryMib", "MiB", 1, 1_048_576)}
        {choice("specId", own(data?.specs))}
        {choice("groupId", own(data?.groups))}
        {choice("api", APIS)}
        {word("model")}
        {word("nodeId")}
        {word("affinity", t("submit.pool.wordHelp"))}
        {word("antiAffinity", t("submit.pool.wordHelp"))}
        {number("cards", undefined, 1, 16)}
        {number("priority", undefined, 0, 100)}
      </div>
      {check("weighted")}
      {check("physical")}
      {check("acrossNodes")}
      {check("local")}
    </Form.Item>
  );
}
