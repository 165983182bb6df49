// Writes what passes the filter to a file that the import reads.
import { useMutation } from "@tanstack/react-query";
import { Button, Radio } from "antd";
import { useEffect, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { call, saveFile } from "../../api";
import { Problem } from "../../components/bits";
import { formatCount } from "../../lib/format";
import { attributesOf, isRegistered, type ResourceFilter } from "../../lib/registry";
import { type Format, headOf, resourceStateOf, writeResource } from "../../lib/resourcefile";
import { useClients } from "../../session";

const PAGE = 1000;

export function ExportDrawer({ filter }: { filter: ResourceFilter }) {
  const { t } = useTranslation();
  const { resources } = useClients();
  const [format, setFormat] = useState<Format>("yaml");
  const [done, setDone] = useState(0);
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const write = useMutation({
    mutationFn: async () => {
      stop.current = new AbortController();
      const { signal } = stop.current;
      const all = (await resources.listResourceTypes({}, call(signal))).types;
      const types = all.filter((x) => !x.readOnly && (filter.type === "" || x.type === filter.type));
      const names = new Set(types.flatMap((x) => attributesOf(all, x.type)?.fields.map((f) => f.key) ?? []));
      const attributes = [...names].sort();
      const parts = [headOf(format, attributes)];
      let count = 0;
      // The widest first, so that parents stand before what is below them.
      for (const { type } of types) {
        let pageToken = "";
        do {
          const res = await resources.listResources(
            {
              ...filter,
              pageSize: PAGE,
              pageToken,
              type,
              aiCenterId: filter.centerId,
              state: resourceStateOf(filter.state),
            },
            call(signal),
          );
          for (const r of res.resources.filter(isRegistered)) {
            parts.push(writeResource(format, r, attributes));
            count++;
          }
          setDone(count);
          pageToken = res.nextPageToken;
        } while (pageToken);
      }
      if (count > 0)
        saveFile(new Blob(parts, { type: format === "csv" ? "text/csv" : "application/yaml" }), `resources.${format}`);
      return count;
    },
  });
  return (
    <>
      <p className="yh-muted">{t("registry.exportHelp")}</p>
      <div className="yh-row">
        <Radio.Group
          value={format}
          aria-label={t("registry.format")}
          onChange={(e) => setFormat(e.target.value as Format)}
          options={[
            { value: "yaml", label: "YAML" },
            { value: "csv", label: "CSV" },
          ]}
          optionType="button"
        />
        <Button
          type="primary"
          loading={write.isPending}
          onClick={() => {
            setDone(0);
            write.mutate();
          }}
          data-testid="export-run"
        >
          {t("registry.export")}
        </Button>
        {write.isPending && <Button onClick={() => stop.current.abort()}>{t("common.cancel")}</Button>}
      </div>
      <div className="yh-after-bars" aria-live="polite">
        {write.isPending && <p>{t("registry.exporting", { shown: formatCount(done) })}</p>}
        {write.error && <Problem error={write.error} />}
        {write.data !== undefined && !write.isPending && (
          <p data-testid="exported">
            {write.data === 0
              ? t("registry.nothingToExport")
              : t("registry.exported", { shown: formatCount(write.data) })}
          </p>
        )}
      </div>
    </>
  );
}
