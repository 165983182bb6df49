import { useMutation } from "@tanstack/react-query";
import { Alert, Button, type FormInstance, Modal, Table } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { Link } from "react-router";
import { call } from "../../api";
import { Moment } from "../../components/bits";
import { useSaid } from "../../components/Placement";
import type { PlanJobResponse } from "../../gen/yunhe/jobs/v1/jobs_pb";
import type { Decision } from "../../gen/yunhe/scheduler/v1/scheduler_pb";
import { type JobForm, toSpec } from "../../lib/jobform";
import { useClients } from "../../session";

/** Says what would happen to the job in the form, without submitting it. */
export function WhatWould({ form, onError }: { form: FormInstance<JobForm>; onError: (error: unknown) => void }) {
  const { t } = useTranslation();
  const { jobs } = useClients();
  const [plan, setPlan] = useState<PlanJobResponse>();
  const ask = useMutation({
    mutationFn: async () => {
      await form.validateFields();
      return jobs.planJob({ job: toSpec(form.getFieldsValue(true) as JobForm) }, call());
    },
    onSuccess: setPlan,
    onError: (error) => {
      // What the form itself refuses is shown at its fields.
      if (!(error && typeof error === "object" && "errorFields" in error)) onError(error);
    },
  });
  return (
    <>
      <Button onClick={() => ask.mutate()} loading={ask.isPending} data-testid="what-would">
        {t("submit.whatWould")}
      </Button>
      <Modal
        open={plan !== undefined}
        onCancel={() => setPlan(undefined)}
        footer={null}
        width={760}
        title={t("submit.whatWould")}
        destroyOnHidden
      >
        {plan && <PlanView plan={plan} tasks={(form.getFieldValue("tasks") ?? []) as JobForm["tasks"]} />}
      </Modal>
    </>
  );
}

function PlanView({ plan, tasks }: { plan: PlanJobResponse; tasks: JobForm["tasks"] }) {
  const { t } = useTranslation();
  const say = useSaid();
  const all = plan.replicasPlaced === plan.replicasTotal;
  return (
    <div data-testid="job-plan">
      <Alert
        showIcon
        className="yh-problem"
        type={all ? "success" : "warning"}
        title={t(all ? "submit.placedAll" : "submit.placedSome", {
          placed: plan.replicasPlaced,
          total: plan.replicasTotal,
        })}
        description={
          plan.waits.length > 0 && (
            <ul className="yh-plain-list">
              {plan.waits.map((w) => (
                <li key={`${w.taskIndex}/${w.cause}/${w.message}`}>
                  {w.taskIndex >= 0 && <b>{tasks[w.taskIndex]?.name} </b>}
                  {w.message}
                </li>
              ))}
            </ul>
          )
        }
      />
      {plan.estimatedStart && (
        <p>
          {t("submit.estimatedStart")} <Moment at={plan.estimatedStart} long />{" "}
          <span className="yh-muted">{say(plan.estimateBasis)}</span>
        </p>
      )}
      <Table<Decision>
        size="small"
        rowKey={(d) => `${d.taskIndex}/${d.replicaIndex}`}
        dataSource={plan.decisions}
        pagination={plan.decisions.length > 10 ? { pageSize: 10, showSizeChanger: false } : false}
        columns={[
          { title: t("submit.replica"), key: "task", render: (_, d) => `${d.taskName} · ${d.replicaIndex}` },
          {
            title: t("center.name"),
            key: "center",
            render: (_, d) =>
              d.aiCenterId ? (
                <Link to={`/centers/${encodeURIComponent(d.aiCenterId)}`} target="_blank">
                  {d.aiCenterId}
                </Link>
              ) : (
                <span className="yh-muted">{say(d.summary)}</span>
              ),
          },
        ]}
      />
    </div>
  );
}
