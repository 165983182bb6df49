import { DownloadOutlined, ImportOutlined } from "@ant-design/icons";
import { useQuery } from "@tanstack/react-query";
import { Alert, App, Button, Dropdown, Segmented, Select, Table, Upload } from "antd";
import { useEffect, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { call, saveFile } from "../../api";
import { Nothing, Panel, Problem } from "../../components/bits";
import {
  AvailabilityMethod,
  type AvailabilityPlan,
  type PlannedModule,
} from "../../gen/yunhe/availability/v1/availability_pb";
import {
  downPerYear,
  exampleSystem,
  fromSystem,
  fromYaml,
  type MethodName,
  methodName,
  type OwnSplit,
  percentText,
  planToCsv,
  planToJson,
  platformSystem,
  type SystemValues,
  splitOf,
  toPercent,
  toSplit,
  toSystem,
  toYaml,
} from "../../lib/availability";
import { messageOf } from "../../lib/errors";
import { formatCount, formatDuration } from "../../lib/format";
import { useClients } from "../../session";
import { SystemEditor } from "./SystemEditor";

type Chosen = "aware" | "none" | "full" | "own";

const CHOSEN = {
  aware: AvailabilityMethod.AWARE,
  none: AvailabilityMethod.NONE,
  full: AvailabilityMethod.FULL,
} as const;

export function Plan({ system, onChange }: { system: SystemValues; onChange: (s: SystemValues) => void }) {
  const { t } = useTranslation();
  const { planning } = useClients();
  const [method, setMethod] = useState<Chosen>("aware");
  const [own, setOwn] = useState<OwnSplit>({});
  const settled = useSettled(system);
  const complete = isComplete(settled);
  const asked = method === "aware" && settled.target === 0 ? "full" : method;
  const plan = useQuery({
    queryKey: ["availability", "plan", asked, settled, asked === "own" ? own : null],
    queryFn: ({ signal }) => {
      const value = toSystem(settled);
      return asked === "own"
        ? planning.evaluateAvailability({ system: value, modules: toSplit(settled, own) }, call(signal))
        : planning.planAvailability({ system: value, method: CHOSEN[asked] }, call(signal));
    },
    enabled: complete,
    placeholderData: (before) => before,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const compared = useQuery({
    queryKey: ["availability", "compare", settled],
    queryFn: async ({ signal }) =>
      (await planning.compareAvailability({ system: toSystem(settled) }, call(signal))).plans,
    enabled: complete,
    placeholderData: (before) => before,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const choose = (next: Chosen) => {
    if (next === "own" && plan.data) setOwn(splitOf(plan.data));
    setMethod(next);
  };
  return (
    <div className="yh-availability">
      <div>
        <Panel title={t("availability.system")} extra={<Files system={system} plan={plan.data} onChange={onChange} />}>
          <SystemEditor system={system} onChange={onChange} />
        </Panel>
      </div>
      <div>
        <Panel title={t("availability.plan")}>
          <Segmented<Chosen>
            value={method}
            onChange={choose}
            className="yh-methods"
            options={(["aware", "none", "full", "own"] as const).map((m) => ({
              value: m,
              label: t(`availability.methods.${m}`),
            }))}
          />
          {!complete ? (
            <Nothing text={t("availability.waiting")} />
          ) : plan.error && !plan.isPlaceholderData ? (
            <Problem error={plan.error} />
          ) : plan.data ? (
            <PlanView plan={plan.data} own={asked === "own" ? own : undefined} onOwn={setOwn} system={settled} />
          ) : null}
        </Panel>
        {complete && compared.data && <Compared plans={compared.data} dependencies={settled.dependencies.length > 0} />}
      </div>
    </div>
  );
}

/** A value once it has not changed for a moment: typing asks once. */
function useSettled<T>(value: T): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), 250);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

function isComplete(s: SystemValues): boolean {
  return (
    s.modules.length > 0 &&
    s.modules.every(
      (m) => m.name !== "" && m.submodules.length > 0 && m.submodules.every((x) => x.name !== "" && x.percent > 0),
    )
  );
}

function Files(props: { system: SystemValues; plan?: AvailabilityPlan; onChange: (s: SystemValues) => void }) {
  const { t } = useTranslation();
  const { planning } = useClients();
  const { message } = App.useApp();
  const start = async (which: string) => {
    try {
      if (which === "example") props.onChange(exampleSystem());
      else if (which === "study") {
        const { system } = await planning.reproduceAvailability({}, call());
        if (system) props.onChange(fromSystem(system));
      } else {
        const { roles } = await planning.getMeasuredAvailability({}, call());
        if (roles.length === 0) void message.info(t("availability.measuredNone"));
        else props.onChange(platformSystem(roles));
      }
    } catch (error) {
      void message.error(messageOf(error));
    }
  };
  const read = async (file: File) => {
    try {
      props.onChange(fromYaml(await file.text()));
    } catch (error) {
      void message.error(t("availability.importFailed", { file: file.name, problem: messageOf(error) }));
    }
  };
  const save = (what: string) => {
    const { plan } = props;
    const text =
      what === "yaml" ? toYaml(props.system) : plan && (what === "json" ? planToJson(plan) : planToCsv(plan));
    if (text) saveFile(new Blob([text], { type: "text/plain" }), what === "yaml" ? "system.yaml" : `plan.${what}`);
  };
  return (
    <div className="yh-row">
      <Dropdown
        trigger={["click"]}
        menu={{
          items: (["example", "study", "platform"] as const).map((key) => ({
            key,
            label: t(`availability.starts.${key}`),
          })),
          onClick: ({ key }) => void start(key),
        }}
      >
        <Button size="small" data-testid="start-from">
          {t("availability.start")}
        </Button>
      </Dropdown>
      <Upload
        accept=".yaml,.yml,.json"
        showUploadList={false}
        beforeUpload={(file) => {
          void read(file);
          return false;
        }}
      >
        <Button size="small" icon={<ImportOutlined />}>
          {t("availability.import")}
        </Button>
      </Upload>
      <Dropdown
        trigger={["click"]}
        menu={{
          items: (["yaml", "json", "csv"] as const).map((key) => ({
            key,
            label: t(`availability.exports.${key}`),
            disabled: key !== "yaml" && !props.plan,
          })),
          onClick: ({ key }) => save(key),
        }}
      >
        <Button size="small" icon={<DownloadOutlined />} data-testid="export">
          {t("availability.export")}
        </Button>
      </Dropdown>
    </div>
  );
}

function PlanView(props: {
  plan: AvailabilityPlan;
  system: SystemValues;
  own?: OwnSplit;
  onOwn: (own: OwnSplit) => void;
}) {
  const { t } = useTranslation();
  const { plan: p } = props;
  const target = `${toPercent(p.target)} %`;
  const instances = p.modules.reduce((sum, m) => sum + m.instances * m.microservices.length, 0);
  return (
    <>
      <div className="yh-facts-line">
        <span>
          <small className="yh-muted">{t("availability.availability")}</small>
          <b className="yh-num yh-big" data-testid="availability">
            {percentText(p.availability, p.unavailability)}
          </b>
          <small className="yh-muted yh-num">
            {t("availability.down", { time: formatDuration(downPerYear(p.unavailability) * 1000) })}
          </small>
        </span>
        <span>
          <small className="yh-muted">{t("availability.microservices")}</small>
          <b className="yh-num yh-big" data-testid="microservices">
            {formatCount(p.microservices)}
          </b>
          <small className="yh-muted">
            {p.minimal
              ? t("availability.least")
              : p.method === AvailabilityMethod.AWARE && p.atLeast > 0 && p.reachable
                ? t("availability.atLeast", { count: p.atLeast })
                : ""}
          </small>
        </span>
        <span>
          <small className="yh-muted">{t("availability.cost")}</small>
          <b className="yh-num yh-big">{formatCount(instances)}</b>
        </span>
      </div>
      {p.target > 0 && (
        <Alert
          type={p.reachable ? "success" : "warning"}
          showIcon
          className="yh-problem"
          title={
            p.reachable
              ? t("availability.reached", { target })
              : t(p.method === AvailabilityMethod.AWARE ? "availability.notReached" : "availability.notReachedBy", {
                  target,
                })
          }
          description={p.advice && <Advice plan={p} />}
        />
      )}
      <Table<PlannedModule>
        size="small"
        rowKey="name"
        dataSource={p.modules}
        pagination={p.modules.length > 20 ? { pageSize: 20, showSizeChanger: false } : false}
        scroll={{ x: 520 }}
        data-testid="plan"
        columns={[
          { title: t("availability.module"), key: "name", width: 150, render: (_, m) => m.name },
          {
            title: t("availability.availability"),
            key: "availability",
            width: 130,
            align: "right",
            render: (_, m) => <span className="yh-num">{percentText(m.availability)}</span>,
          },
          {
            title: t("availability.split"),
            key: "split",
            render: (_, m) =>
              props.own ? (
                <OwnModule module={m.name} {...props} own={props.own} />
              ) : (
                <span className="yh-groups">
                  {m.microservices.map((x) => (
                    <span key={x.submodules.join("/")} className="yh-group">
                      {x.submodules.map((name) => (
                        <code key={name}>{name}</code>
                      ))}
                      <small className="yh-num yh-muted">×{m.instances}</small>
                    </span>
                  ))}
                </span>
              ),
          },
        ]}
      />
      {p.sensitivity.length > 0 && <Improve plan={p} />}
    </>
  );
}

function Advice({ plan: { advice } }: { plan: AvailabilityPlan }) {
  const { t } = useTranslation();
  if (!advice) return null;
  return (
    <>
      {advice.instances > 0 && <div>{t("availability.adviceInstances", { count: advice.instances })}</div>}
      {advice.submodule > 0 && (
        <div>{t("availability.adviceSubmodule", { percent: percentText(advice.submodule) })}</div>
      )}
      {advice.instances === 0 && advice.submodule === 0 && <div>{t("availability.adviceNone")}</div>}
    </>
  );
}

// One choice for each submodule: the microservice it is in.
function OwnModule(props: { module: string; system: SystemValues; own: OwnSplit; onOwn: (own: OwnSplit) => void }) {
  const { t } = useTranslation();
  const submodules = props.system.modules.find((m) => m.name === props.module)?.submodules ?? [];
  const at = props.own[props.module] ?? {};
  return (
    <span className="yh-groups">
      {submodules.map((x) => (
        <span key={x.name} className="yh-row yh-own">
          <code>{x.name}</code>
          <Select<number>
            size="small"
            value={at[x.name] ?? 0}
            aria-label={t("availability.into", { name: x.name })}
            onChange={(n) => props.onOwn({ ...props.own, [props.module]: { ...at, [x.name]: n } })}
            options={submodules.map((_, i) => ({ value: i, label: String(i + 1) }))}
          />
        </span>
      ))}
    </span>
  );
}

function Improve({ plan }: { plan: AvailabilityPlan }) {
  const { t } = useTranslation();
  const top = plan.sensitivity.slice(0, 5);
  const most = top[0]?.gain ?? 0;
  return (
    <div className="yh-improve">
      <h3>
        {t("availability.improve")} <small className="yh-muted yh-normal">{t("availability.gain")}</small>
      </h3>
      {top.map((x) => (
        <div key={`${x.module}/${x.submodule}`} className="yh-improve-row">
          <span>
            {x.module} / <b>{x.submodule}</b>
          </span>
          <span className="yh-load" aria-hidden>
            <i style={{ width: `${most > 0 ? (100 * x.gain) / most : 0}%` }} />
          </span>
          <small className="yh-num yh-muted">{formatDuration(downPerYear(x.gain) * 1000)}</small>
        </div>
      ))}
    </div>
  );
}

function Compared({ plans, dependencies }: { plans: AvailabilityPlan[]; dependencies: boolean }) {
  const { t } = useTranslation();
  const rows = useMemo(() => [...plans].sort((a, b) => a.microservices - b.microservices), [plans]);
  const name = (m: MethodName) => t(`availability.methods.${m}`);
  return (
    <Panel title={t("availability.compare")}>
      <Table<AvailabilityPlan>
        size="small"
        rowKey="method"
        dataSource={rows}
        pagination={false}
        scroll={{ x: 420 }}
        data-testid="compared"
        columns={[
          { title: t("availability.method"), key: "method", render: (_, p) => name(methodName(p.method)) },
          {
            title: t("availability.microservices"),
            key: "microservices",
            align: "right",
            width: 110,
            render: (_, p) => <span className="yh-num">{formatCount(p.microservices)}</span>,
          },
          {
            title: t("availability.availability"),
            key: "availability",
            align: "right",
            width: 170,
            render: (_, p) => (
              <span className={p.target > 0 && !p.reachable ? "yh-num yh-bad" : "yh-num"}>
                {percentText(p.availability, p.unavailability)}
              </span>
            ),
          },
        ]}
      />
      {!dependencies && <p className="yh-muted yh-flat">{t("availability.noDependencies")}</p>}
    </Panel>
  );
}
