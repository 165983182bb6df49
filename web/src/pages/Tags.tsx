// Tags: the library, the objects that carry them, the rules that set them, and what was changed.
import { useTranslation } from "react-i18next";
import { TabbedPage } from "../components/TabbedPage";
import { History } from "./tags/History";
import { Library } from "./tags/Library";
import { Objects } from "./tags/Objects";
import { Rules } from "./tags/Rules";

export function Tags() {
  const { t } = useTranslation();
  const tabs = [
    { key: "library", label: t("tag.library"), children: <Library /> },
    { key: "objects", label: t("tag.objects"), children: <Objects /> },
    { key: "rules", label: t("tag.rules"), children: <Rules /> },
    { key: "history", label: t("tag.history"), children: <History /> },
  ];
  return <TabbedPage title={t("nav.tags")} sub={t("tag.sub")} tabs={tabs} />;
}
