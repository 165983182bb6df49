// Connects a center: which plug-in, its configuration, a look at it, and then
// what comes of it. With a center in the address it changes the configuration
// of that center's instance.

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Alert, App, Button, Form, Input, Steps } from "antd";
import { type ReactNode, useMemo, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useNavigate, useSearchParams } from "react-router";
import { call } from "../api";
import { AccessReportView } from "../components/AccessBits";
import { Copyable, Loaded, Moment, Nothing, PageHead, Panel, PluginTag } from "../components/bits";
import { JoinForm, type JoinToken } from "../components/JoinToken";
import { Parts } from "../components/Parts";
import { FieldLabel, SchemaFields } from "../components/SchemaForm";
import { usePluginActions } from "../components/usePluginActions";
import { useServerErrors } from "../components/useServerErrors";
import type { Instance, Plugin } from "../gen/yunhe/adapters/v1/adapters_pb";
import { messageOf } from "../lib/errors";
import { formatCount, NONE } from "../lib/format";
import { connectStages, GATEWAY, isConnectable, joinedKey, joinedWith, type Stage } from "../lib/plugins";
import { type Field, linesOf, parseSchema, toConfig, toForm } from "../lib/schema";
import { useCenter, usePlugin, usePlugins } from "../queries";
import { useClients, useSession } from "../session";

export function Connect() {
  const { t } = useTranslation();
  const { can } = useSession();
  const [params] = useSearchParams();
  const plugin = params.get("plugin") ?? "";
  const center = params.get("center") ?? "";
  const live = params.has("live");
  const title = t(center && !live ? "connect.changeTitle" : "connect.title");
  if (!can("adapters.write")) {
    return (
      <>
        <PageHead title={title} back={{ to: "/centers", label: t("nav.centers") }} />
        <Panel>
          <Nothing text={t("connect.denied")} />
        </Panel>
      </>
    );
  }
  if (plugin === "") return <Choose title={title} />;
  if (plugin === GATEWAY) return <Gateway title={title} />;
  return <Configure key={plugin} title={title} name={plugin} center={center} live={live} />;
}

const STEPS = ["choose", "configure", "review", "live"] as const;

function Frame(props: {
  title: string;
  step: number;
  of?: number;
  back?: { to: string; label: string };
  children: ReactNode;
}) {
  const { t } = useTranslation();
  return (
    <>
      <PageHead title={props.title} back={props.back ?? { to: "/centers", label: t("nav.centers") }} />
      <Steps
        className="yh-steps"
        size="small"
        current={props.step}
        aria-label={t("connect.steps")}
        items={STEPS.slice(0, props.of).map((s) => ({ title: t(`connect.step.${s}`) }))}
      />
      {props.children}
    </>
  );
}

function Choose({ title }: { title: string }) {
  const { t } = useTranslation();
  const plugins = usePlugins();
  return (
    <Frame title={title} step={0}>
      <p className="yh-muted">{t("connect.chooseHelp")}</p>
      <Loaded query={plugins}>
        {(list) => (
          <ul className="yh-cards">
            {[...list]
              .filter((p) => p.name === GATEWAY || isConnectable(p))
              .map((p) => (
                <li key={p.name}>
                  <Link
                    to={`/connect?plugin=${encodeURIComponent(p.name)}`}
                    className="yh-card"
                    data-testid={`plugin-${p.name}`}
                  >
                    <span className="yh-card-head">
                      <b>{p.name}</b>
                      <small>{p.version}</small>
                    </span>
                    <span className="yh-card-text">
                      {t(p.name === GATEWAY ? "connect.gatewayText" : "connect.pluginText", { name: p.name })}
                    </span>
                    <Parts parts={p.parts} />
                  </Link>
                </li>
              ))}
            <li>
              <Link to="/plugins?register" className="yh-card yh-card-other">
                <span className="yh-card-head">
                  <b>{t("connect.elsewhere")}</b>
                </span>
                <span className="yh-card-text">{t("connect.elsewhereText")}</span>
              </Link>
            </li>
          </ul>
        )}
      </Loaded>
    </Frame>
  );
}

// A gateway needs no configuration here: it brings its own. What the token is
// for is followed until the center is in the network.
function Gateway({ title }: { title: string }) {
  const { t } = useTranslation();
  const { adapters } = useClients();
  const [made, setMade] = useState<JoinToken>();
  const [before, setBefore] = useState<ReadonlyMap<string, string>>(new Map());
  const remember = async () => {
    const { gateways } = await adapters.listGateways({}, call());
    setBefore(new Map(gateways.map((g) => [g.aiCenterId, joinedKey(g)])));
  };
  return (
    <Frame title={title} step={made ? 3 : 1} back={{ to: "/connect", label: t("connect.step.choose") }}>
      {made ? (
        <Joining made={made} before={before} />
      ) : (
        <Panel title={t("center.gateway")} className="yh-narrow">
          <JoinForm before={remember} onMade={setMade} />
        </Panel>
      )}
    </Frame>
  );
}

const JOIN_MS = 1500;

function Joining({ made, before }: { made: JoinToken; before: ReadonlyMap<string, string> }) {
  const { t } = useTranslation();
  const { adapters } = useClients();
  const gateways = useQuery({
    queryKey: ["gateways", "joining", made.token.token],
    queryFn: async ({ signal }) => (await adapters.listGateways({}, call(signal))).gateways,
    refetchInterval: JOIN_MS,
  });
  const gateway = joinedWith(gateways.data ?? [], before, made.centerId);
  const center = gateway?.aiCenterId ?? "";
  const stages: Stage[] = !gateway ? ["going", "pending"] : gateway.connected ? ["done", "done"] : ["done", "going"];
  const command = `YUNHE_JOIN_TOKEN=${made.token.token} yunhe gateway --server ${window.location.origin} --data /var/lib/yunhe-gateway`;
  return (
    <Panel title={center ? <code>{center}</code> : t("join.made")} className="yh-narrow">
      {!gateway && (
        <>
          <p>
            {t("join.run")} {t("join.once")} {t("join.validUntil")} <Moment at={made.token.expiresAt} long />
          </p>
          <div className="yh-secret">
            <Copyable text={command} />
          </div>
        </>
      )}
      {gateways.error && <Alert type="error" showIcon className="yh-problem" title={messageOf(gateways.error)} />}
      <ol className="yh-stages" aria-live="polite" data-testid="join-stages">
        {(["joined", "connected"] as const).map((name, i) => (
          <li key={name} className={`yh-stage-${stages[i]} ${TONE[stages[i] ?? "pending"]}`}>
            <i aria-hidden />
            <span>
              {t(`join.stage.${name}`)}
              <small>{t(`connect.stageState.${stages[i] ?? "pending"}`)}</small>
            </span>
          </li>
        ))}
      </ol>
      {gateway?.connected ? (
        <>
          <Reached id={center} />
          <AccessReportView resourceId={`center:${center}`} />
          <div className="yh-row">
            <Link to={`/centers/${encodeURIComponent(center)}`}>
              <Button type="primary">{t("connect.toCenter")}</Button>
            </Link>
            <Link to={`/access?resource=${encodeURIComponent(`center:${center}`)}`}>
              <Button>{t("join.toRecord")}</Button>
            </Link>
          </div>
        </>
      ) : (
        <p className="yh-muted">{t("join.waits")}</p>
      )}
    </Panel>
  );
}

interface Values {
  aiCenterId: string;
  config?: Record<string, unknown>;
}

function Configure({ title, name, center, live }: { title: string; name: string; center: string; live: boolean }) {
  const { t } = useTranslation();
  const { adapters } = useClients();
  const plugin = usePlugin(name, live ? 1000 : undefined);
  const changing = center !== "" && !live;
  // What is changed begins as it is, with secrets hidden; it is not read again while someone types.
  const instance = useQuery({
    queryKey: ["plugins", name, "instance", center],
    queryFn: ({ signal }) => adapters.getInstance({ plugin: name, aiCenterId: center }, call(signal)),
    enabled: changing,
    gcTime: 0,
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnWindowFocus: false,
  });
  if (plugin.data && (!changing || instance.data))
    return (
      <Wizard
        title={title}
        plugin={plugin.data}
        center={center}
        live={live}
        config={changing ? (instance.data?.config ?? "") : ""}
      />
    );
  return (
    <Frame title={title} step={1} back={{ to: "/connect", label: t("connect.step.choose") }}>
      <Panel>
        <Loaded<unknown> query={changing && plugin.data ? instance : plugin}>{() => null}</Loaded>
      </Panel>
    </Frame>
  );
}

function Wizard(props: { title: string; plugin: Plugin; center: string; live: boolean; config: string }) {
  const { t } = useTranslation();
  const { plugin, center, live } = props;
  const { adapters } = useClients();
  const { modal } = App.useApp();
  const client = useQueryClient();
  const [, setParams] = useSearchParams();
  const [reviewing, setReviewing] = useState(false);
  const [form] = Form.useForm<Values>();
  const errors = useServerErrors(form, "");
  const { schema, problem } = useMemo(() => read(plugin.configSchema), [plugin.configSchema]);
  const [held, setHeld] = useState<Values>();
  const instance = plugin.list.find((i) => i.aiCenterId === center && center !== "");

  const save = useMutation({
    mutationFn: ({ aiCenterId, config }: { aiCenterId: string; config: string }) =>
      center
        ? adapters.updateInstance({ plugin: plugin.name, aiCenterId, config }, call())
        : adapters.createInstance({ plugin: plugin.name, aiCenterId, config }, call()),
    onSuccess: async (saved) => {
      await client.invalidateQueries({ queryKey: ["plugins"] });
      setReviewing(false);
      setParams({ plugin: plugin.name, center: saved.aiCenterId, live: "1" }, { replace: true });
    },
    onError: (error) => {
      setReviewing(false);
      errors.show(error);
    },
  });
  const config = held && configOf(schema, held);
  const apply = () => {
    if (!held || config === undefined) return;
    errors.show(undefined);
    const text = JSON.stringify(config);
    const values = { aiCenterId: center || held.aiCenterId, config: text };
    // What is in service stops for a moment.
    if (instance?.state === "up") {
      void modal.confirm({
        title: t("connect.changeConfirm", { center }),
        content: t("connect.changeConfirmHelp"),
        okText: t("connect.apply"),
        okButtonProps: { danger: true },
        onOk: () => save.mutateAsync(values).catch(() => undefined),
      });
    } else save.mutate(values);
  };
  const step = live ? 3 : reviewing ? 2 : 1;
  return (
    <Frame
      title={props.title}
      step={step}
      back={{ to: `/plugins/${encodeURIComponent(plugin.name)}`, label: plugin.name }}
    >
      <div hidden={step !== 1}>
        <Form
          form={form}
          layout="vertical"
          className="yh-connect"
          initialValues={{
            aiCenterId: center,
            config: toForm(schema, props.config ? JSON.parse(props.config) : undefined),
          }}
          scrollToFirstError={{ block: "center", focus: true }}
          onFinish={() => {
            errors.show(undefined);
            setHeld(form.getFieldsValue(true) as Values);
            setReviewing(true);
          }}
        >
          {errors.alert}
          {center && !live && <Alert type="info" showIcon className="yh-problem" title={t("connect.sealed")} />}
          {problem && <Alert type="warning" showIcon className="yh-problem" title={problem} />}
          <Panel title={t("connect.center")}>
            <Form.Item
              name="aiCenterId"
              label={t("join.center")}
              extra={t("connect.centerHelp")}
              rules={[
                { required: true, message: t("form.required") },
                { max: 32, message: t("form.max", { count: 32 }) },
                { pattern: /^[A-Za-z0-9][A-Za-z0-9._-]*$/, message: t("form.id") },
              ]}
            >
              <Input autoFocus={!center} disabled={center !== ""} autoComplete="off" className="yh-w-320" />
            </Form.Item>
          </Panel>
          <ConfigPanels schema={schema} />
          <div className="yh-row yh-form-foot">
            <Button type="primary" htmlType="submit" data-testid="review">
              {t("connect.toReview")}
            </Button>
          </div>
        </Form>
      </div>
      {step === 2 && held && (
        <Panel title={t("connect.step.review")} className="yh-connect">
          <Review schema={schema} plugin={plugin} centerId={center || held.aiCenterId} config={config} />
          <div className="yh-row yh-form-foot">
            <Button type="primary" onClick={apply} loading={save.isPending} data-testid="apply">
              {t(center ? "connect.apply" : "connect.connect")}
            </Button>
            <Button onClick={() => setReviewing(false)} disabled={save.isPending}>
              {t("connect.back")}
            </Button>
          </div>
        </Panel>
      )}
      {step === 3 && (
        <Live plugin={plugin} center={center} onChange={() => setParams({ plugin: plugin.name, center })} />
      )}
    </Frame>
  );
}

// Without a schema, or with one that is none, the configuration is written as JSON.
function read(text: string): { schema: Field; problem: string } {
  const json: Field = { ...parseSchema("{}"), kind: "json", key: "config", title: "JSON", required: false };
  if (text === "") return { schema: json, problem: "" };
  try {
    const schema = parseSchema(text);
    return { schema: schema.kind === "json" ? json : schema, problem: "" };
  } catch (error) {
    return { schema: json, problem: messageOf(error) };
  }
}

function configOf(schema: Field, held: Values): unknown {
  return toConfig(schema, held.config);
}

// What every driver may be told of its center, because no cluster knows it of itself.
const ABOUT = new Set([
  "name",
  "region",
  "longitude",
  "latitude",
  "security_grade",
  "static_watts_per_cpu",
  "active_watts_per_cpu",
  "performance",
  "prices",
  "labels",
]);

function ConfigPanels({ schema }: { schema: Field }) {
  const { t } = useTranslation();
  if (schema.kind !== "group") {
    return (
      <Panel title={t("connect.config")}>
        <p className="yh-muted">{t("connect.noSchema")}</p>
        <SchemaFields fields={[schema]} name={[]} path={[]} />
      </Panel>
    );
  }
  const required = schema.fields.filter((f) => f.required);
  const about = schema.fields.filter((f) => !f.required && ABOUT.has(f.key));
  const others = schema.fields.filter((f) => !f.required && !ABOUT.has(f.key));
  const panels = [
    { key: "required", title: t("connect.required"), fields: required },
    { key: "optional", title: t("connect.optional"), fields: others },
    { key: "about", title: t("connect.about"), fields: about },
  ];
  return panels
    .filter((p) => p.fields.length > 0)
    .map((p) => (
      <Panel key={p.key} title={p.title}>
        <div className="yh-schema">
          <SchemaFields fields={simpleFirst(p.fields)} name={["config"]} path={["config"]} />
        </div>
      </Panel>
    ));
}

// What takes one line goes before what takes a box, each in its order.
function simpleFirst(fields: Field[]): Field[] {
  const boxed = (f: Field) => f.kind === "group" || f.kind === "list" || f.kind === "map";
  return [...fields.filter((f) => !boxed(f)), ...fields.filter(boxed)];
}

function Review(props: { schema: Field; plugin: Plugin; centerId: string; config: unknown }) {
  const { t } = useTranslation();
  const lines = linesOf(props.schema, props.config);
  return (
    <dl className="yh-review" data-testid="review-lines">
      <dt>{t("plugin.name")}</dt>
      <dd>
        {props.plugin.name} {props.plugin.version}
      </dd>
      <dt>{t("join.center")}</dt>
      <dd>
        <code>{props.centerId}</code>
      </dd>
      {lines.map((line) => (
        <div key={line.path} className="yh-review-line">
          <dt>{/[.[]/.test(line.path) ? <code>{line.path}</code> : <FieldLabel field={line.field} />}</dt>
          <dd>
            {line.secret ? (
              <span className="yh-muted">{t("connect.secretSet")}</span>
            ) : line.field.kind === "boolean" ? (
              t(line.value === "true" ? "common.yes" : "common.no")
            ) : (
              <span className="yh-wrap">{line.value}</span>
            )}
          </dd>
        </div>
      ))}
      {lines.length === 0 && (
        <>
          <dt>{t("connect.config")}</dt>
          <dd className="yh-muted">{t("connect.defaults")}</dd>
        </>
      )}
    </dl>
  );
}

/** What comes of it, as it happens, until the center is up or someone changes something. */
function Live({ plugin, center, onChange }: { plugin: Plugin; center: string; onChange: () => void }) {
  const { t } = useTranslation();
  const navigate = useNavigate();
  const actions = usePluginActions();
  const instance = plugin.list.find((i) => i.aiCenterId === center);
  const page = `/plugins/${encodeURIComponent(plugin.name)}`;
  if (!instance) {
    return (
      <Panel>
        <Nothing text={t("connect.gone", { center })}>
          <Link to={page}>{plugin.name}</Link>
        </Nothing>
      </Panel>
    );
  }
  const stages = connectStages(instance);
  const names = ["plugin", "center", "network"] as const;
  const up = instance.state === "up";
  return (
    <Panel title={<code>{center}</code>} extra={<PluginTag state={instance.state} />} className="yh-narrow">
      <ol className="yh-stages" aria-live="polite">
        {names.map((name, i) => (
          <li key={name} className={`yh-stage-${stages[i]} ${TONE[stages[i] ?? "pending"]}`}>
            <i aria-hidden />
            <span>
              {t(`connect.stage.${name}`, { plugin: plugin.name })}
              <small>{t(`connect.stageState.${stages[i] ?? "pending"}`)}</small>
            </span>
          </li>
        ))}
      </ol>
      {instance.message && (
        <Alert
          type={instance.state === "down" ? "error" : "warning"}
          showIcon
          className="yh-problem"
          title={instance.message}
          data-testid="live-message"
        />
      )}
      {up && <AccessReportView resourceId={`center:${center}`} />}
      {up ? <Reached id={center} /> : <p className="yh-muted">{t(hope(instance))}</p>}
      <p className="yh-muted">
        {t("plugin.since")} <Moment at={instance.changedAt} /> · {t("plugin.version")} {instance.version || NONE}
      </p>
      <div className="yh-row">
        {up ? (
          <>
            <Link to={`/centers/${encodeURIComponent(center)}`}>
              <Button type="primary">{t("connect.toCenter")}</Button>
            </Link>
            <Link to="/connect">
              <Button>{t("connect.another")}</Button>
            </Link>
          </>
        ) : (
          <>
            <Button type="primary" onClick={onChange}>
              {t("plugin.change")}
            </Button>
            <Button danger onClick={() => actions.disconnect(instance, () => void navigate(page))}>
              {t("plugin.disconnect")}
            </Button>
          </>
        )}
      </div>
    </Panel>
  );
}

/** What to expect of an instance that is not up. */
function hope(instance: Instance) {
  if (instance.state === "disabled" || instance.state === "standby")
    return `plugin.stateHelp.${instance.state}` as const;
  return instance.message ? ("connect.triesAgain" as const) : ("connect.waits" as const);
}

const TONE: Record<Stage, string> = {
  pending: "yh-tone-neutral",
  going: "yh-tone-active",
  done: "yh-tone-good",
  failed: "yh-tone-bad",
};

function Reached({ id }: { id: string }) {
  const { t } = useTranslation();
  const { data: c } = useCenter(id);
  if (!c) return null;
  return (
    <>
      <p>{t("connect.reached", { name: c.name || id, cpu: formatCount(c.resources?.cpu ?? 0n) })}</p>
      {c.nodes && (
        <p>{t("connect.reachedNodes", { count: Number(c.nodes.total), shown: formatCount(c.nodes.total) })}</p>
      )}
    </>
  );
}
