import { useTranslation } from "react-i18next";

const REASONS = [
  "completed",
  "exit",
  "signal",
  "oom",
  "wall_time",
  "stopped",
  "start_failed",
  "lost",
  "never_started",
  "refused",
  "reclaimed",
  "preempted",
  "restarted",
  "scaled_in",
  "pool_refused",
  "pool_lost",
] as const;

/** Words for the platform's reason codes; a code unknown here is shown as it is. */
export function useReason(): (code: string) => string {
  const { t } = useTranslation();
  return (code) => {
    const known = REASONS.find((r) => r === code);
    return known ? t(`reason.${known}`) : code;
  };
}
