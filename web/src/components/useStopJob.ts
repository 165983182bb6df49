import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App } from "antd";
import { useTranslation } from "react-i18next";
import { call } from "../api";
import { messageOf } from "../lib/errors";
import { useClients } from "../session";

/** Asks the platform to stop a job and says what came of it. */
export function useStopJob() {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { jobs } = useClients();
  const client = useQueryClient();
  return useMutation({
    mutationFn: (jobId: string) => jobs.stopJob({ jobId, reason: t("job.stopReason") }, call()),
    onSuccess: async (job) => {
      void message.success(t("job.stopAsked"));
      await Promise.all([
        client.invalidateQueries({ queryKey: ["jobs"] }),
        client.invalidateQueries({ queryKey: ["job", job.jobId] }),
      ]);
    },
    onError: (error) => void message.error(messageOf(error)),
  });
}
