import { create } from "@bufbuild/protobuf";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App, Button, Popconfirm, Select } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../api";
import { Loaded, Moment, Panel, Problem } from "../components/bits";
import { TabbedPage } from "../components/TabbedPage";
import { usePresetTitle } from "../components/usePresetTitle";
import { WeightSliders, type Weights } from "../components/WeightSliders";
import { type ListPoliciesResponse, type PolicySet, PolicySetSchema } from "../gen/yunhe/scheduler/v1/scheduler_pb";
import { sameWeights, withoutZeros } from "../lib/weights";
import { usePolicies, usePolicySet } from "../queries";
import { useClients, useSession } from "../session";
import { Modules } from "./policies/Modules";
import { Records } from "./policies/Records";
import { TestList } from "./policies/Tests";

export function Policies() {
  const { t } = useTranslation();
  const tabs = [
    { key: "weights", label: t("policy.weights"), children: <Weighting /> },
    { key: "records", label: t("record.policies"), children: <Records /> },
    { key: "tests", label: t("record.tests"), children: <TestList /> },
    { key: "modules", label: t("record.modules"), children: <Modules /> },
  ];
  return <TabbedPage title={t("nav.policies")} sub={t("policy.sub")} tabs={tabs} />;
}

function Weighting() {
  const policies = usePolicies();
  const set = usePolicySet();
  return (
    <Loaded query={policies} rows={10}>
      {(list) => (
        <Loaded query={set} rows={10}>
          {(current) => <Editor key={set.dataUpdatedAt} policies={list} current={current} />}
        </Loaded>
      )}
    </Loaded>
  );
}

function Editor({ policies, current }: { policies: ListPoliciesResponse; current: PolicySet }) {
  const { t } = useTranslation();
  const { can } = useSession();
  const { message } = App.useApp();
  const { scheduler } = useClients();
  const client = useQueryClient();
  const presetTitle = usePresetTitle();
  const [weights, setWeights] = useState<Weights>({ ...current.weights });
  const write = can("scheduler.write");
  const changed = !sameWeights(weights, current.weights);
  const total = Object.values(weights).reduce((s, w) => s + w, 0);
  const preset = policies.presets.find((p) => sameWeights(p.weights, weights));
  const save = useMutation({
    mutationFn: () =>
      scheduler.setPolicySet(
        {
          policySet: preset
            ? create(PolicySetSchema, { preset: preset.name })
            : create(PolicySetSchema, { weights: withoutZeros(weights) }),
        },
        call(),
      ),
    onSuccess: (answer) => {
      client.setQueryData(["policy-set"], answer);
      void message.success(t("policy.saved"));
    },
  });
  return (
    <Panel
      className="yh-inner"
      title={
        <>
          {t("policy.platformSet")}{" "}
          {current.updatedAt && (
            <small className="yh-muted yh-normal">
              {t("policy.updated")} <Moment at={current.updatedAt} />
            </small>
          )}
        </>
      }
      extra={
        <div className="yh-row">
          <Select
            className="yh-w-180"
            aria-label={t("policy.preset")}
            value={preset?.name ?? ""}
            disabled={!write}
            onChange={(name) => {
              const chosen = policies.presets.find((p) => p.name === name);
              if (chosen) setWeights({ ...chosen.weights });
            }}
            options={[
              ...(preset ? [] : [{ value: "", label: t("policy.own"), disabled: true }]),
              ...policies.presets.map((p) => ({ value: p.name, label: presetTitle(p.name) })),
            ]}
          />
          {write && (
            <>
              <Button disabled={!changed} onClick={() => setWeights({ ...current.weights })}>
                {t("common.reset")}
              </Button>
              <Popconfirm
                title={t("policy.saveTitle")}
                description={t("policy.saveHelp")}
                onConfirm={() => save.mutateAsync().catch(() => undefined)}
                disabled={!changed || total === 0}
              >
                <Button
                  type="primary"
                  disabled={!changed || total === 0}
                  loading={save.isPending}
                  data-testid="save-policies"
                >
                  {t("common.save")}
                </Button>
              </Popconfirm>
            </>
          )}
        </div>
      }
    >
      {save.error && <Problem error={save.error} />}
      <p className="yh-muted">{total === 0 ? t("policy.zero") : t("policy.how")}</p>
      <WeightSliders policies={policies.policies} value={weights} onChange={setWeights} disabled={!write} docs />
    </Panel>
  );
}
