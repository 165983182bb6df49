import { CloseOutlined, PlusOutlined } from "@ant-design/icons";
import { Button, Collapse, Input, InputNumber, Select } from "antd";
import { useTranslation } from "react-i18next";
import type { ModuleValues, SubmoduleValues, SystemValues } from "../../lib/availability";

const TARGETS = [99, 99.9, 99.95, 99.99, 99.999];

export function SystemEditor({ system: s, onChange }: { system: SystemValues; onChange: (s: SystemValues) => void }) {
  const { t } = useTranslation();
  const set = (change: Partial<SystemValues>) => onChange({ ...s, ...change });
  const setModule = (i: number, m: ModuleValues) => set({ modules: s.modules.with(i, m) });
  return (
    <>
      <div className="yh-cols-2 yh-labeled">
        <div>
          {t("availability.target")}
          <InputNumber
            min={0}
            max={99.9999999}
            value={s.target}
            suffix="%"
            aria-label={t("availability.target")}
            onChange={(v) => set({ target: v ?? 0 })}
          />
          <span className="yh-row">
            {TARGETS.map((p) => (
              <Button
                key={p}
                size="small"
                type={s.target === p ? "primary" : "text"}
                onClick={() => set({ target: p })}
              >
                {p}
              </Button>
            ))}
          </span>
        </div>
        <div>
          {t("availability.instances")}
          <Select<number>
            value={s.instances}
            aria-label={t("availability.instances")}
            onChange={(instances) => set({ instances })}
            options={[1, 2, 3, 4, 5, 6, 8, 10].map((n) => ({ value: n, label: String(n) }))}
          />
        </div>
      </div>
      <Collapse
        ghost
        size="small"
        className="yh-more-options"
        items={[
          {
            key: "more",
            label: t("availability.advanced"),
            children: (
              <div className="yh-labeled">
                <div>
                  {t("availability.commonCause")}
                  <InputNumber
                    className="yh-w-140"
                    min={0}
                    max={100}
                    value={s.commonCause}
                    aria-label={t("availability.commonCause")}
                    suffix="%"
                    onChange={(v) => set({ commonCause: v ?? 0 })}
                  />
                  <small className="yh-muted">{t("availability.commonCauseHelp")}</small>
                </div>
                <div>
                  {t("availability.sites")}
                  <Named
                    list={s.sites}
                    add={t("availability.addSite")}
                    fresh="site"
                    onChange={(sites) => set({ sites })}
                    most={4}
                  />
                  <small className="yh-muted">{t("availability.sitesHelp")}</small>
                </div>
              </div>
            ),
          },
        ]}
      />
      {s.modules.map((m, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: names change while they are typed
        <section className="yh-module" key={i} aria-label={`${t("availability.module")} ${m.name}`}>
          <div className="yh-row">
            <Input
              className="yh-module-name"
              value={m.name}
              placeholder={t("availability.module")}
              aria-label={t("availability.module")}
              onChange={(e) => setModule(i, { ...m, name: e.target.value })}
            />
            <InputNumber
              className="yh-w-140"
              min={1}
              max={100}
              precision={0}
              value={m.instances ?? null}
              prefix="×"
              placeholder={t("availability.asSystem")}
              aria-label={t("availability.moduleInstances")}
              onChange={(v) => setModule(i, { ...m, instances: v ?? undefined })}
            />
            <span className="yh-grow" />
            {s.modules.length > 1 && (
              <Button
                type="text"
                size="small"
                icon={<CloseOutlined />}
                aria-label={t("availability.removeModule", { name: m.name })}
                onClick={() => set({ modules: s.modules.toSpliced(i, 1) })}
              />
            )}
          </div>
          <Named
            list={m.submodules}
            least={1}
            add={t("availability.addSubmodule")}
            fresh="sub"
            onChange={(submodules) => setModule(i, { ...m, submodules })}
          />
        </section>
      ))}
      <Button
        type="dashed"
        block
        icon={<PlusOutlined />}
        data-testid="add-module"
        onClick={() =>
          set({
            modules: [...s.modules, { name: free("module", s.modules), submodules: [{ name: "sub-1", percent: 99 }] }],
          })
        }
      >
        {t("availability.addModule")}
      </Button>
    </>
  );
}

function free(word: string, list: readonly { name: string }[]): string {
  const taken = new Set(list.map((x) => x.name));
  let n = list.length + 1;
  while (taken.has(`${word}-${n}`)) n++;
  return `${word}-${n}`;
}

// Names with an availability each.
function Named(props: {
  list: SubmoduleValues[];
  add: string;
  fresh: string;
  least?: number;
  most?: number;
  onChange: (list: SubmoduleValues[]) => void;
}) {
  const { t } = useTranslation();
  const { list } = props;
  return (
    <div className="yh-named">
      {list.map((x, j) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: names change while they are typed
        <div className="yh-row" key={j}>
          <Input
            value={x.name}
            size="small"
            aria-label={t("availability.submodule")}
            onChange={(e) => props.onChange(list.with(j, { ...x, name: e.target.value }))}
          />
          <InputNumber
            size="small"
            min={0.0001}
            max={100}
            step={0.1}
            value={x.percent}
            suffix="%"
            aria-label={`${t("availability.availability")} ${x.name}`}
            onChange={(v) => props.onChange(list.with(j, { ...x, percent: v ?? 0 }))}
          />
          <Button
            type="text"
            size="small"
            icon={<CloseOutlined />}
            disabled={list.length <= (props.least ?? 0)}
            aria-label={t("availability.remove", { name: x.name })}
            onClick={() => props.onChange(list.toSpliced(j, 1))}
          />
        </div>
      ))}
      <Button
        size="small"
        type="dashed"
        icon={<PlusOutlined />}
        disabled={list.length >= (props.most ?? 1000)}
        onClick={() => props.onChange([...list, { name: free(props.fresh, list), percent: 99 }])}
      >
        {props.add}
      </Button>
    </div>
  );
}
