import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App, Button, Tooltip } from "antd";
import { useTranslation } from "react-i18next";
import { call } from "../api";
import type { Job } from "../gen/yunhe/jobs/v1/jobs_pb";
import { State } from "../gen/yunhe/jobs/v1/jobs_pb";
import { messageOf } from "../lib/errors";
import { hasEnded } from "../lib/states";
import { useClients, useSession } from "../session";

/** Pauses a job, or has it go on. Nothing is shown for jobs that are ending or have ended. */
export function PauseButton({ job }: { job: Job }) {
  const { t } = useTranslation();
  const { can } = useSession();
  const { message } = App.useApp();
  const { jobs } = useClients();
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: (pause: boolean) =>
      pause ? jobs.pauseJob({ jobId: job.jobId }, call()) : jobs.resumeJob({ jobId: job.jobId }, call()),
    onSuccess: async (now) => {
      void message.success(t(now.pauseAsked ? "job.pauseAsked" : "job.resumeAsked"));
      await Promise.all([
        client.invalidateQueries({ queryKey: ["jobs"] }),
        client.invalidateQueries({ queryKey: ["job", now.jobId] }),
      ]);
    },
    onError: (error) => void message.error(messageOf(error)),
  });
  if (hasEnded(job.state) || job.state === State.STOPPING || !can("jobs.write")) return null;
  return (
    <Tooltip title={job.pauseAsked ? undefined : t("job.pauseHelp")}>
      <Button loading={change.isPending} onClick={() => change.mutate(!job.pauseAsked)} data-testid="pause">
        {t(job.pauseAsked ? "job.resume" : "job.pause")}
      </Button>
    </Tooltip>
  );
}

/** Says that a job is on the way to being paused, or back. */
export function PauseNote({ job }: { job: Job }) {
  const { t } = useTranslation();
  const paused = job.state === State.PAUSED;
  if (job.pauseAsked === paused) return null;
  return <span className="yh-muted">{t(job.pauseAsked ? "job.pausing" : "job.resuming")}</span>;
}
