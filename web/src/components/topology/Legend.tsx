// What colors mean, and how much there is of each.
import { useTranslation } from "react-i18next";
import type { Binding } from "../../gen/yunhe/topology/v1/topology_pb";
import { formatCount } from "../../lib/format";
import { formatFigure } from "../../lib/topology/figures";
import { type Counts, Health, healthName } from "../../lib/topology/model";
import type { Palette } from "../../lib/topology/palette";

const ORDER = [Health.healthy, Health.busy, Health.warning, Health.down, Health.unknown, Health.isolated, Health.none];

/** The color of a health with its sign, as in the drawing. */
export function HealthMark({ health, palette }: { health: number; palette: Palette }) {
  return (
    <svg className="yh-topo-swatch" width="16" height="12" viewBox="0 0 16 12" aria-hidden="true">
      <rect width="16" height="12" rx="2.5" fill={palette.health[health]} />
      <path d={SIGNS[health] ?? ""} stroke={palette.onHealth[health]} strokeWidth="1.6" fill="none" />
    </svg>
  );
}

const SIGNS: Record<number, string> = {
  [Health.down]: "M5.5 3.5l5 5m0-5l-5 5",
  [Health.warning]: "M8 2.5v4.2m0 1.4v1.4",
  [Health.unknown]: "M5 6h6",
  [Health.isolated]: "M6.5 3v6m3-6v6",
};

export function HealthLegend(props: {
  counts: Counts;
  palette: Palette;
  only: number | undefined;
  onOnly: (health: number | undefined) => void;
}) {
  const { t } = useTranslation();
  return (
    <ul className="yh-topo-legend" aria-label={t("topology.legend")}>
      {ORDER.filter((h) => h !== Health.none || (props.counts[h] ?? 0) > 0).map((h) => (
        <li key={h}>
          <button
            type="button"
            aria-pressed={props.only === h}
            data-testid={`health-${healthName(h)}`}
            onClick={() => props.onOnly(props.only === h ? undefined : h)}
          >
            <HealthMark health={h} palette={props.palette} />
            {t(`topology.health.${healthName(h)}`)}
            <b className="yh-num">{formatCount(props.counts[h] ?? 0)}</b>
          </button>
        </li>
      ))}
    </ul>
  );
}

export function ScaleLegend({ binding, title, palette }: { binding: Binding; title: string; palette: Palette }) {
  const { t } = useTranslation();
  const colors = palette.scale.slice(0, -1);
  return (
    <div className="yh-topo-legend">
      <span>{title}</span>
      <span className="yh-num">{formatFigure(binding.low, binding.unit)}</span>
      <i className="yh-topo-ramp" aria-hidden style={{ background: `linear-gradient(90deg, ${colors.join(",")})` }} />
      <span className="yh-num">{formatFigure(binding.high, binding.unit)}</span>
      <span className="yh-topo-unmeasured">
        <i style={{ background: palette.scale[palette.scale.length - 1] }} aria-hidden />
        {t("topology.unmeasured")}
      </span>
    </div>
  );
}

export function MarkLegend(props: { added: number; changed: number; removed: number }) {
  const { t } = useTranslation();
  return (
    <ul className="yh-topo-legend" aria-label={t("topology.differences")}>
      {(["added", "changed", "removed"] as const).map((kind) => (
        <li key={kind}>
          <i className={`yh-topo-outline yh-mark-${kind}`} aria-hidden />
          {t(`topology.kinds.${kind}`)}{" "}
          <b className="yh-num" data-testid={`diff-${kind}`}>
            {formatCount(props[kind])}
          </b>
        </li>
      ))}
    </ul>
  );
}
