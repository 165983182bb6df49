// Weights of the scheduling policies: one slider each, with its share of the whole.
import { InputNumber, Slider, Tooltip } from "antd";
import { useTranslation } from "react-i18next";
import type { Policy } from "../gen/yunhe/scheduler/v1/scheduler_pb";
import { policyDoc } from "../i18n/policydocs";
import { usePrefs } from "../prefs";

export const MAX_WEIGHT = 1000;

export type Weights = Record<string, number>;

export function WeightSliders(props: {
  policies: Policy[];
  value?: Weights;
  onChange?: (weights: Weights) => void;
  disabled?: boolean;
  docs?: boolean;
}) {
  const { t } = useTranslation();
  const { language } = usePrefs();
  const weights = props.value ?? {};
  const total = Object.values(weights).reduce((s, w) => s + w, 0);
  // Presets speak in small numbers; the sliders' scale grows with the largest weight in use.
  const scale =
    Math.max(10, ...Object.values(weights)) <= 10 ? 10 : Math.max(...Object.values(weights)) <= 100 ? 100 : MAX_WEIGHT;
  const set = (id: string, weight: number | null) => props.onChange?.({ ...weights, [id]: weight ?? 0 });
  return (
    <div className={props.docs ? "yh-weights yh-weights-docs" : "yh-weights"}>
      {props.policies.map((p) => {
        const title = (language === "zh" ? p.titleZh : "") || p.title || p.policyId;
        const weight = weights[p.policyId] ?? 0;
        return (
          <div key={p.policyId} className={weight > 0 ? "yh-weight" : "yh-weight yh-weight-off"}>
            <div className="yh-weight-title">
              <Tooltip title={props.docs ? undefined : policyDoc(p, language)}>
                <b>{title}</b>
              </Tooltip>
              {props.docs && <code>{p.policyId}</code>}
              {props.docs && <p>{policyDoc(p, language)}</p>}
              {props.docs && p.factors.length > 0 && (
                <p className="yh-labels">
                  <span>{t("policy.factors")}</span>
                  {p.factors.map((f) => (
                    <code key={f}>{f}</code>
                  ))}
                </p>
              )}
            </div>
            <Slider
              min={0}
              max={scale}
              value={weight}
              disabled={props.disabled}
              onChange={(w) => set(p.policyId, w)}
              ariaLabelForHandle={title}
              tooltip={{ open: false }}
            />
            <InputNumber
              size="small"
              min={0}
              max={MAX_WEIGHT}
              precision={0}
              value={weight}
              disabled={props.disabled}
              aria-label={title}
              onChange={(w) => set(p.policyId, w)}
            />
            <span className="yh-num yh-weight-share">
              {total > 0 ? `${((weight / total) * 100).toFixed(1)}%` : "–"}
            </span>
          </div>
        );
      })}
    </div>
  );
}
