// Parts of a policy's form: a labeled line with what is wrong there, an entry
// of a list, a scope, and vetoes.
import { CloseOutlined, PlusOutlined } from "@ant-design/icons";
import { Button, InputNumber, Select } from "antd";
import { type ReactNode, useId } from "react";
import { useTranslation } from "react-i18next";
import type { PolicyProblem, PolicyScope } from "../../gen/yunhe/policies/v1/policies_pb";
import { labelsOf, labelTexts } from "../../lib/registry";
import { usePrefs } from "../../prefs";
import { usePolicies } from "../../queries";

/** Where a policy applies: a job must be in every part that is not empty. */
export function ScopeFields(props: { scope: PolicyScope | undefined; onChange: (part: Partial<PolicyScope>) => void }) {
  const { t } = useTranslation();
  const { scope: s, onChange } = props;
  const words = (label: string, value: string[], change: (v: string[]) => void) => (
    <Line label={label}>
      {(id) => (
        <Select
          id={id}
          mode="tags"
          open={false}
          suffixIcon={null}
          tokenSeparators={[",", " "]}
          value={value}
          onChange={change}
          placeholder={t("record.any")}
          aria-label={label}
        />
      )}
    </Line>
  );
  return (
    <div className="yh-cols-2">
      {words(t("record.regions"), s?.regions ?? [], (regions) => onChange({ regions }))}
      {words(t("record.businesses"), s?.businesses ?? [], (businesses) => onChange({ businesses }))}
      {words(t("identity.tenants"), s?.tenants ?? [], (tenants) => onChange({ tenants }))}
      {words(t("identity.users"), s?.users ?? [], (users) => onChange({ users }))}
      {words(t("nav.centers"), s?.centers ?? [], (centers) => onChange({ centers }))}
      {words(t("record.labels"), labelTexts(s?.labels ?? {}), (l) => onChange({ labels: labelsOf(l) }))}
    </div>
  );
}

type Minimums = Record<string, number>;

/** Least scores by built-in policy. */
export function Vetoes(props: {
  minimums: Minimums;
  problems: readonly PolicyProblem[] | undefined;
  onChange: (minimums: Minimums) => void;
}) {
  const { t } = useTranslation();
  const { language } = usePrefs();
  const builtIn = usePolicies().data?.policies ?? [];
  const list = Object.entries(props.minimums);
  const free = builtIn.filter((p) => !(p.policyId in props.minimums));
  const options = (id: string) =>
    builtIn
      .filter((p) => p.policyId === id || !(p.policyId in props.minimums))
      .map((p) => ({ value: p.policyId, label: (language === "zh" && p.titleZh) || p.title }));
  return (
    <>
      <h4 className="yh-small-title">{t("record.vetoes")}</h4>
      <p className="yh-field-help">{t("record.vetoesHelp")}</p>
      {list.map(([id, least], i) => {
        const label = t("record.veto", { number: i + 1 });
        const put = (next: [string, number] | undefined) =>
          props.onChange(Object.fromEntries(list.flatMap((e, k) => (k !== i ? [e] : next ? [next] : []))));
        return (
          <div className="yh-row yh-veto" key={id}>
            <Select
              className="yh-w-240"
              aria-label={label}
              value={id}
              onChange={(next: string) => put([next, least])}
              options={options(id)}
            />
            <InputNumber
              min={1}
              max={100}
              precision={0}
              prefix="≥"
              value={least}
              aria-label={`${label}: ${t("record.vetoLeast")}`}
              onChange={(v) => put([id, v ?? 1])}
            />
            <Button
              type="text"
              size="small"
              icon={<CloseOutlined aria-hidden />}
              aria-label={`${t("common.remove")}: ${label}`}
              onClick={() => put(undefined)}
            />
          </div>
        );
      })}
      <Problems of={props.problems} />
      <Button
        size="small"
        icon={<PlusOutlined aria-hidden />}
        disabled={free.length === 0}
        onClick={() => free[0] && props.onChange({ ...props.minimums, [free[0].policyId]: 20 })}
      >
        {t("record.addVeto")}
      </Button>
    </>
  );
}

export function Line(props: {
  label: string;
  problems?: readonly PolicyProblem[];
  help?: string;
  required?: boolean;
  children: (id: string) => ReactNode;
}) {
  const id = useId();
  return (
    <div className="yh-line">
      <label htmlFor={id}>
        {props.label}
        {props.required && <span className="yh-star">*</span>}
      </label>
      {props.children(id)}
      {props.help && <p className="yh-field-help yh-flat">{props.help}</p>}
      <Problems of={props.problems} />
    </div>
  );
}

export function Problems({ of }: { of: readonly PolicyProblem[] | undefined }) {
  return (of ?? []).map((p) => (
    <div
      key={`${p.field}/${p.problem}`}
      className={p.warning ? "yh-field-warning" : "yh-field-problem"}
      data-testid="field-problem"
    >
      {p.problem}
    </div>
  ));
}

export function Item(props: { label: string; onRemove: () => void; children: ReactNode }) {
  const { t } = useTranslation();
  return (
    <div className="yh-item">
      <div className="yh-item-head">
        <span className="yh-muted">{props.label}</span>
        <Button
          type="text"
          size="small"
          icon={<CloseOutlined aria-hidden />}
          aria-label={`${t("common.remove")}: ${props.label}`}
          onClick={props.onRemove}
        />
      </div>
      {props.children}
    </div>
  );
}
