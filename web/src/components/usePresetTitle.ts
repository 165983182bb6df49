import { useTranslation } from "react-i18next";

const PRESETS = [
  "balanced",
  "lowest-cost",
  "nearest",
  "best-performance",
  "greenest",
  "most-secure",
  "spread",
] as const;

/** Words for the built-in presets; a preset unknown here is shown by its name. */
export function usePresetTitle(): (name: string) => string {
  const { t } = useTranslation();
  return (name) => {
    const known = PRESETS.find((p) => p === name);
    return known ? t(`policy.presets.${known}`) : name;
  };
}
