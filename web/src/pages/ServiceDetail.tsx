// One service: what its users ask for, where that goes, and how full it is there.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Alert, App, Button, Modal, Popconfirm, Table, Tooltip } from "antd";
import { useCallback, useState } from "react";
import { useTranslation } from "react-i18next";
import { Link, useNavigate, useParams } from "react-router";
import { call } from "../api";
import { Loaded, Moment, Nothing, PageHead, Panel } from "../components/bits";
import { RangeChart, WindowSwitch } from "../components/Chart";
import type { OriginRoute, RoutePlace, Routes, Service } from "../gen/yunhe/routing/v1/routing_pb";
import { messageOf } from "../lib/errors";
import { formatCount, formatDuration, NONE } from "../lib/format";
import { useCenterNames } from "../queries";
import { useClients, useSession } from "../session";
import { SERIES } from "../theme";
import { ServiceForm } from "./services/ServiceForm";

export function ServiceDetail() {
  const { t } = useTranslation();
  const { serviceId = "" } = useParams();
  const { routing } = useClients();
  const service = useQuery({
    queryKey: ["services", serviceId],
    queryFn: ({ signal }) => routing.getService({ serviceId }, call(signal)),
  });
  const routes = useQuery({
    queryKey: ["services", serviceId, "routes"],
    queryFn: ({ signal }) => routing.getRoutes({ serviceId }, call(signal)),
    refetchInterval: 3000,
  });
  return (
    <>
      <PageHead
        title={service.data?.name ?? serviceId}
        back={{ to: "/services", label: t("nav.services") }}
        sub={<code>{serviceId}</code>}
        extra={service.data && <Actions service={service.data} />}
      />
      <Loaded query={service}>
        {(s) => (
          <Loaded query={routes} rows={8}>
            {(r) => <Body service={s} routes={r} />}
          </Loaded>
        )}
      </Loaded>
    </>
  );
}

function Actions({ service: s }: { service: Service }) {
  const { t } = useTranslation();
  const { routing } = useClients();
  const { can } = useSession();
  const { message } = App.useApp();
  const client = useQueryClient();
  const navigate = useNavigate();
  const [open, setOpen] = useState(false);
  const remove = useMutation({
    mutationFn: () => routing.deleteService({ serviceId: s.serviceId }, call()),
    onSuccess: async () => {
      await navigate("/services");
      await client.invalidateQueries({ queryKey: ["services"] });
    },
    onError: (e) => void message.error(messageOf(e)),
  });
  if (!can("jobs.write")) return null;
  return (
    <div className="yh-row">
      <Button onClick={() => setOpen(true)} data-testid="edit-service">
        {t("service.edit")}
      </Button>
      <Popconfirm
        title={t("service.deleteTitle", { name: s.name })}
        description={t("service.deleteHelp")}
        okText={t("common.delete")}
        cancelText={t("common.cancel")}
        okButtonProps={{ danger: true }}
        onConfirm={() => remove.mutate()}
      >
        <Button danger loading={remove.isPending}>
          {t("common.delete")}
        </Button>
      </Popconfirm>
      <Modal
        open={open}
        onCancel={() => setOpen(false)}
        footer={null}
        width={720}
        title={t("service.edit")}
        destroyOnHidden
      >
        <ServiceForm service={s} onDone={() => setOpen(false)} />
      </Modal>
    </div>
  );
}

function Body({ service: s, routes: r }: { service: Service; routes: Routes }) {
  const { t } = useTranslation();
  const { can } = useSession();
  const asked = r.origins.some((o) => o.demand > 0);
  const serves = r.places.some((p) => p.replicas > 0);
  return (
    <>
      {!serves && <Alert type="warning" showIcon className="yh-problem" title={t("service.nowhere")} />}
      <Panel title={t("service.traffic")}>
        <div className="yh-facts-line">
          <Fact label={t("service.mean")} value={r.meanMicroseconds > 0n ? formatDuration(r.meanMicroseconds) : NONE} />
          <Fact
            label={t("service.overload")}
            value={r.overload > 0 ? t("service.requests", { count: round(r.overload) }) : NONE}
            bad={r.overload > 0}
          />
          {s.maxLatencyMicroseconds > 0n && (
            <Fact
              label={t("service.beyond")}
              value={`${round(r.beyondLimitPercent)} %`}
              bad={r.beyondLimitPercent > 0}
            />
          )}
          <Fact
            label={t("service.generation", { number: formatCount(r.generation) })}
            value={<Moment at={r.madeAt} />}
          />
        </div>
        {asked ? <Traffic service={s} routes={r} /> : <Nothing text={t("service.noTraffic")} />}
      </Panel>
      <Places places={r.places} />
      {can("monitor.read") && <History id={s.serviceId} />}
      <Panel title={t("service.jobs")}>
        <div className="yh-row">
          {s.jobIds.map((id) => (
            <Link key={id} to={`/jobs/${encodeURIComponent(id)}`}>
              <code>{id}</code>
            </Link>
          ))}
        </div>
      </Panel>
    </>
  );
}

// What was asked, where it went, and how long it took, over time.
function History({ id }: { id: string }) {
  const { t } = useTranslation();
  const [window, setWindow] = useState(3600);
  const nameOfCenter = useCenterNames();
  const of = `{service="${id}"}`;
  const rate = useCallback((v: number) => t("service.requests", { count: round(v) }), [t]);
  const byOrigin = useCallback((labels: Record<string, string>) => labels.origin ?? "", []);
  const byCenter = useCallback(
    (labels: Record<string, string>) => (labels.center ? nameOfCenter(labels.center) : t("service.capacity")),
    [t, nameOfCenter],
  );
  const mean = useCallback(() => t("service.mean"), [t]);
  const charts = [
    { title: t("service.demand"), query: `yunhe_service_requests_per_second${of}`, format: rate, nameOf: byOrigin },
    {
      title: t("service.served"),
      query: `yunhe_service_served_per_second${of} or sum by (service) (yunhe_service_capacity_per_second${of})`,
      format: rate,
      nameOf: byCenter,
    },
    {
      title: t("service.mean"),
      query: `1000 * yunhe_service_latency_seconds${of}`,
      format: (v: number) => t("service.ms", { value: round(v) }),
      nameOf: mean,
    },
  ];
  return (
    <Panel title={t("service.history")} extra={<WindowSwitch value={window} onChange={setWindow} />}>
      <div className="yh-charts-3">
        {charts.map(({ title, ...chart }) => (
          <div key={title}>
            <h3>{title}</h3>
            <RangeChart {...chart} windowSeconds={window} height={200} label={title} />
          </div>
        ))}
      </div>
    </Panel>
  );
}

function Fact({ label, value, bad }: { label: string; value: React.ReactNode; bad?: boolean }) {
  return (
    <span>
      <small className="yh-muted">{label}</small>
      <b className={bad ? "yh-num yh-bad" : "yh-num"}>{value}</b>
    </span>
  );
}

const round = (v: number) => (v < 100 ? String(Math.round(v * 10) / 10) : formatCount(v));

// Each region: what it asks for, and the shares of it that go to each center.
function Traffic({ service: s, routes: r }: { service: Service; routes: Routes }) {
  const { t } = useTranslation();
  const centerName = useCenterNames();
  const names = new Map(s.origins.map((o) => [o.originId, o.name]));
  const colors = new Map(r.places.map((p, i) => [p.aiCenterId, SERIES[i % SERIES.length]]));
  return (
    <Table<OriginRoute>
      size="small"
      rowKey="originId"
      dataSource={r.origins}
      pagination={false}
      scroll={{ x: 820 }}
      data-testid="routes"
      columns={[
        {
          title: t("service.origin"),
          key: "origin",
          width: 160,
          render: (_, o) => names.get(o.originId) || o.originId,
        },
        {
          title: t("service.demand"),
          key: "demand",
          width: 110,
          align: "right",
          render: (_, o) => <span className="yh-num">{round(o.demand)}</span>,
        },
        {
          title: t("service.expected"),
          key: "expected",
          width: 150,
          align: "right",
          render: (_, o) => <span className="yh-num">{round(o.expected)}</span>,
        },
        {
          title: t("service.weights"),
          key: "weights",
          render: (_, o) => (
            <>
              <div className="yh-shares" aria-hidden>
                {o.weights.map((w) => (
                  <i key={w.aiCenterId} style={{ flexGrow: w.weight, background: colors.get(w.aiCenterId) }} />
                ))}
              </div>
              <div className="yh-row yh-share-names">
                {o.weights.map((w) => (
                  <Tooltip key={w.aiCenterId} title={t("service.weightsHelp")}>
                    <span>
                      <i style={{ background: colors.get(w.aiCenterId) }} aria-hidden />
                      {centerName(w.aiCenterId)} <b className="yh-num">{w.weight}</b>{" "}
                      <small className="yh-muted yh-num">
                        {formatDuration(w.latencyMicroseconds)}
                        {!w.measured && ` ${t("service.estimated")}`}
                      </small>
                    </span>
                  </Tooltip>
                ))}
              </div>
            </>
          ),
        },
      ]}
    />
  );
}

function Places({ places }: { places: RoutePlace[] }) {
  const { t } = useTranslation();
  return (
    <Panel flush title={t("service.places")}>
      <Table<RoutePlace>
        size="small"
        rowKey="aiCenterId"
        dataSource={places}
        pagination={false}
        scroll={{ x: 700 }}
        locale={{ emptyText: <Nothing text={t("service.nowhere")} /> }}
        columns={[
          {
            title: t("center.name"),
            key: "center",
            render: (_, p) => (
              <Link to={`/centers/${encodeURIComponent(p.aiCenterId)}`}>{p.centerName || p.aiCenterId}</Link>
            ),
          },
          {
            title: t("service.replicas"),
            key: "replicas",
            width: 90,
            align: "right",
            render: (_, p) => <span className="yh-num">{formatCount(p.replicas)}</span>,
          },
          {
            title: t("service.load"),
            key: "load",
            width: 300,
            render: (_, p) => (
              <span>
                <span className="yh-load" aria-hidden>
                  <i style={{ width: `${p.capacity > 0 ? Math.min(100, (100 * p.load) / p.capacity) : 0}%` }} />
                </span>
                <small className="yh-num yh-muted">
                  {t("service.useOf", { load: round(p.load), capacity: round(p.capacity) })}
                </small>
              </span>
            ),
          },
          { title: t("service.endpoint"), key: "endpoint", render: (_, p) => <code>{p.endpoint || NONE}</code> },
        ]}
      />
    </Panel>
  );
}
