import { Button, InputNumber, Popover } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import type { PoolFigures } from "../../gen/yunhe/pool/v1/pool_pb";
import { NONE } from "../../lib/format";

const SOURCES = ["counter", "power", "powercap", "model"] as const;

const watts = (milliwatts: bigint) => Number(milliwatts) / 1000;

/** How warm a device is and what it draws, with where that comes from; and of a card that has one, its limit. */
export function DevicePower({
  figures: f,
  onLimit,
}: {
  figures: PoolFigures | undefined;
  /** Sets the limit, in watts; -1 for the maker's. Absent where that is not allowed. */
  onLimit: ((watts: number) => void) | undefined;
}) {
  const { t } = useTranslation();
  const source = SOURCES.find((s) => s === f?.energySource);
  if (!f || (f.temperatureCelsius === undefined && !source)) return <>{NONE}</>;
  const limit = f.powerLimitMilliwatts;
  return (
    <span className="yh-job-link">
      <span className="yh-num">
        {f.temperatureCelsius !== undefined && `${f.temperatureCelsius} °C `}
        {source && `${watts(f.powerMilliwatts).toFixed(1)} W`}
      </span>
      {source && <small>{t(`pool.energyBy.${source}`)}</small>}
      {limit !== undefined && <Limit figures={f} limit={limit} onLimit={onLimit} />}
      {f.powerLimitError && <small className="yh-bad">{t("pool.limitError", { why: f.powerLimitError })}</small>}
    </span>
  );
}

function Limit({
  figures: f,
  limit,
  onLimit,
}: {
  figures: PoolFigures;
  limit: bigint;
  onLimit: ((watts: number) => void) | undefined;
}) {
  const { t } = useTranslation();
  const [open, setOpen] = useState(false);
  const [value, setValue] = useState<number | null>(null);
  const text = t("pool.powerLimit", { watts: watts(limit) });
  if (!onLimit || f.leastPowerLimitMilliwatts === undefined || f.mostPowerLimitMilliwatts === undefined)
    return <small>{text}</small>;
  const set = (n: number) => {
    setOpen(false);
    onLimit(n);
  };
  const content = (
    <div className="yh-row">
      <InputNumber
        aria-label={t("pool.limitTitle")}
        min={watts(f.leastPowerLimitMilliwatts)}
        max={watts(f.mostPowerLimitMilliwatts)}
        precision={0}
        suffix="W"
        placeholder={String(watts(limit))}
        value={value}
        onChange={setValue}
      />
      <Button size="small" type="primary" disabled={value === null} onClick={() => value !== null && set(value)}>
        {t("pool.limitSet")}
      </Button>
      <Button size="small" onClick={() => set(-1)}>
        {t("pool.limitDefault")}
      </Button>
    </div>
  );
  return (
    <Popover trigger="click" open={open} onOpenChange={setOpen} title={t("pool.limitTitle")} content={content}>
      <Button size="small" type="link">
        {text}
      </Button>
    </Popover>
  );
}
