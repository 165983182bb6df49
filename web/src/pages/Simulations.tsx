// Simulations: work of the past or made up, played by several policies.
import { Modal, Progress, type TableColumnsType } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { call } from "../api";
import { CreateButton, Moment, PageHead, Panel, Tag } from "../components/bits";
import { PagedTable, usePaged } from "../components/Pager";
import { type Simulation, SimulationState } from "../gen/yunhe/simulations/v1/simulations_pb";
import { formatCount } from "../lib/format";
import { SIMULATION_STATES } from "../lib/simulations";
import { useClients, useSession } from "../session";
import { SimulationForm } from "./simulations/SimulationForm";

export function Simulations() {
  const { t } = useTranslation();
  const { simulations } = useClients();
  const { can } = useSession();
  const [open, setOpen] = useState(false);
  const paged = usePaged({
    key: ["simulations"],
    everyMs: 3000,
    fetchPage: async (pageToken, signal) => {
      const res = await simulations.listSimulations({ pageSize: 50, pageToken }, call(signal));
      return { items: res.simulations, nextPageToken: res.nextPageToken };
    },
  });
  const columns: TableColumnsType<Simulation> = [
    {
      title: t("simulation.simulation"),
      key: "title",
      ellipsis: true,
      render: (_, s) => (
        <Link to={`/simulations/${s.simulationId}`} className="yh-job-link">
          <b>{s.title || t(`simulation.sources.${source(s)}`)}</b>
          <small>{s.simulationId}</small>
        </Link>
      ),
    },
    {
      title: t("simulation.state"),
      key: "state",
      width: 170,
      render: (_, s) =>
        s.state === SimulationState.RUNNING ? (
          <Progress percent={Math.floor(s.progressPermille / 10)} size="small" />
        ) : (
          <Tag
            tone={SIMULATION_STATES[s.state].tone}
            text={t(`simulation.states.${SIMULATION_STATES[s.state].word}`)}
          />
        ),
    },
    {
      title: t("simulation.of"),
      key: "source",
      width: 140,
      ellipsis: true,
      render: (_, s) => t(`simulation.sources.${source(s)}`),
    },
    {
      title: t("simulation.jobs"),
      key: "jobs",
      width: 100,
      align: "right",
      render: (_, s) => <span className="yh-num">{formatCount(s.jobs)}</span>,
    },
    {
      title: t("simulation.compared"),
      key: "compared",
      width: 300,
      ellipsis: true,
      render: (_, s) => s.compared.join(", "),
    },
    { title: t("common.created"), key: "created", width: 132, render: (_, s) => <Moment at={s.createdAt} /> },
  ];
  return (
    <>
      <PageHead
        title={t("nav.simulations")}
        sub={t("simulation.sub")}
        extra={
          can("jobs.write") && (
            <CreateButton text={t("simulation.create")} onClick={() => setOpen(true)} testId="new-simulation" />
          )
        }
      />
      <Panel flush>
        <PagedTable
          paged={paged}
          rowKey="simulationId"
          columns={columns}
          scroll={{ x: 1080 }}
          data-testid="simulations"
          empty={t("simulation.none")}
        />
      </Panel>
      <Modal
        open={open}
        onCancel={() => setOpen(false)}
        footer={null}
        title={t("simulation.create")}
        width={640}
        destroyOnHidden
      >
        <SimulationForm onDone={() => setOpen(false)} />
      </Modal>
    </>
  );
}

/** What is played, as the texts name it. */
export function source(s: Simulation): "platform" | "files" | "recipe" {
  return s.source === "files" || s.source === "recipe" ? s.source : "platform";
}
