// What is played, and what is compared.
import { UploadOutlined } from "@ant-design/icons";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Button, Collapse, Form, Input, InputNumber, Segmented, Select, Upload } from "antd";
import { useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { useNavigate } from "react-router";
import { call, newRequestId } from "../../api";
import { usePresetTitle } from "../../components/usePresetTitle";
import { useServerErrors } from "../../components/useServerErrors";
import { usePolicies } from "../../queries";
import { useClients, useSession } from "../../session";

const LIVE = "live";

interface Values {
  title?: string;
  source: "platform" | "files" | "recipe";
  days?: number;
  most?: number;
  recipe?: string;
  policies: string[];
  queues?: string[];
  seed?: number;
  load?: number;
  speed?: number;
}

/** A policy as it is chosen or typed: "gold@3" is a kept one, all else a preset or weights. */
function compared(p: string) {
  if (p === LIVE) return { inForce: true };
  const kept = /^([a-z][a-z0-9-]*)@(\d+)$/.exec(p);
  return kept ? { policyId: kept[1], version: BigInt(kept[2] ?? 0) } : { preset: p };
}

export function SimulationForm({ onDone }: { onDone: () => void }) {
  const { t } = useTranslation();
  const { simulations, policies } = useClients();
  const { can } = useSession();
  const client = useQueryClient();
  const navigate = useNavigate();
  const presets = usePolicies();
  const presetTitle = usePresetTitle();
  const records = useQuery({
    queryKey: ["policyRecords", "all"],
    enabled: can("scheduler.read"),
    queryFn: ({ signal }) => policies.listPolicyRecords({ pageSize: 500 }, call(signal)),
  });
  const [form] = Form.useForm<Values>();
  const source = Form.useWatch("source", form) ?? "platform";
  const [file, setFile] = useState<File>();
  const request = useRef(newRequestId());
  const errors = useServerErrors(form, "", (path) => {
    const field = path[0] === "platform" || path[0] === "files" ? "source" : path[0];
    return field === undefined ? undefined : [field];
  });
  const start = useMutation({
    mutationFn: async (v: Values) =>
      simulations.startSimulation(
        {
          requestId: request.current,
          title: v.title?.trim() ?? "",
          platform:
            v.source === "platform" ? { sinceSeconds: BigInt((v.days ?? 7) * 86_400), jobs: v.most ?? 0 } : undefined,
          files:
            v.source === "files" && file
              ? { nodes: new Uint8Array(await file.arrayBuffer()), nodesName: file.name }
              : undefined,
          recipe: v.source === "recipe" ? (v.recipe?.trim() ?? "") : "",
          policies: v.policies.map(compared),
          queues: v.queues ?? [],
          seed: BigInt(v.seed ?? 1),
          load: v.load ?? 0,
          speed: v.speed ?? 0,
        },
        call(),
      ),
    onSuccess: async (s) => {
      onDone();
      await client.invalidateQueries({ queryKey: ["simulations"] });
      void navigate(`/simulations/${s.simulationId}`);
    },
    onError: (e) => {
      request.current = newRequestId(); // what is sent next is another request
      errors.show(e);
    },
  });
  const options = [
    ...(source === "platform" ? [{ value: LIVE, label: t("simulation.inForce") }] : []),
    ...(records.data?.records ?? []).map((r) => ({ value: `${r.policyId}@${r.latestVersion}` })),
    ...(presets.data?.presets ?? []).map((p) => ({ value: p.name, label: presetTitle(p.name) })),
  ];
  return (
    <Form
      form={form}
      layout="vertical"
      initialValues={{ source: "platform", days: 7, policies: [LIVE], recipe: "centers=20,jobs=2000,load=1.1" }}
      onFinish={(v) => {
        errors.show(undefined);
        start.mutate(v);
      }}
    >
      {errors.alert}
      <Form.Item name="title" label={t("simulation.title")}>
        <Input maxLength={128} autoComplete="off" autoFocus />
      </Form.Item>
      <Form.Item name="source" label={t("simulation.of")}>
        <Segmented
          options={(["platform", "recipe", "files"] as const).map((s) => ({
            value: s,
            label: t(`simulation.sources.${s}`),
          }))}
          onChange={(s) => {
            const chosen = form.getFieldValue("policies") as string[];
            if (s === "platform" && chosen.length === 0) form.setFieldValue("policies", [LIVE]);
            if (s !== "platform")
              form.setFieldValue(
                "policies",
                chosen.filter((p) => p !== LIVE),
              );
          }}
        />
      </Form.Item>
      {source === "platform" && (
        <div className="yh-row">
          <Form.Item name="days" label={t("simulation.since")}>
            <InputNumber min={1} max={365} precision={0} />
          </Form.Item>
          <Form.Item name="most" label={t("simulation.most")}>
            <InputNumber min={1} max={20_000} precision={0} placeholder="5000" />
          </Form.Item>
        </div>
      )}
      {source === "recipe" && (
        <Form.Item name="recipe" label={t("simulation.recipe")} extra={t("simulation.recipeHelp")}>
          <Input autoComplete="off" />
        </Form.Item>
      )}
      {source === "files" && (
        <Form.Item label={t("simulation.file")} extra={t("simulation.fileHelp")} required>
          <Upload
            accept=".yaml,.yml,.json,.csv"
            maxCount={1}
            beforeUpload={(f) => {
              setFile(f);
              return false;
            }}
            onRemove={() => setFile(undefined)}
          >
            <Button icon={<UploadOutlined aria-hidden />}>{t("simulation.chooseFile")}</Button>
          </Upload>
        </Form.Item>
      )}
      <Form.Item name="policies" label={t("simulation.policies")} extra={t("simulation.policiesHelp")}>
        <Select mode="tags" options={options} maxCount={8} tokenSeparators={[";"]} />
      </Form.Item>
      <Form.Item name="queues" label={t("simulation.queues")} extra={t("simulation.queuesHelp")}>
        <Select mode="tags" open={false} maxCount={4} tokenSeparators={[";"]} suffixIcon={null} />
      </Form.Item>
      <Collapse
        ghost
        size="small"
        items={[
          {
            key: "more",
            label: t("simulation.more"),
            forceRender: true,
            children: (
              <>
                <Form.Item name="seed" label={t("simulation.seed")}>
                  <InputNumber min={1} precision={0} placeholder="1" />
                </Form.Item>
                <Form.Item name="load" label={t("simulation.load")} extra={t("simulation.loadHelp")}>
                  <InputNumber min={0} max={100} step={0.1} />
                </Form.Item>
                <Form.Item name="speed" label={t("simulation.speed")} extra={t("simulation.speedHelp")}>
                  <InputNumber min={0} />
                </Form.Item>
              </>
            ),
          },
        ]}
      />
      <div className="yh-row">
        <Button
          type="primary"
          htmlType="submit"
          loading={start.isPending}
          disabled={source === "files" && !file}
          data-testid="start-simulation"
        >
          {t("simulation.start")}
        </Button>
        <Button onClick={onDone}>{t("common.cancel")}</Button>
      </div>
    </Form>
  );
}
