import { useTranslation } from "react-i18next";
import { NONE } from "../lib/format";
import { PARTS } from "../lib/plugins";

/** The parts a plug-in offers; one unknown here is shown as it is. */
export function Parts({ parts }: { parts: string[] }) {
  const { t } = useTranslation();
  if (parts.length === 0) return <span className="yh-none">{NONE}</span>;
  return (
    <span className="yh-chips">
      {parts.map((part) => {
        const known = PARTS.find((p) => p === part);
        return <span key={part}>{known ? t(`plugin.part.${known}`) : part}</span>;
      })}
    </span>
  );
}
