// Reads a file of resources, says what importing it would do, and does it.
import { UploadOutlined } from "@ant-design/icons";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Alert, Progress as Bar, Button, Upload } from "antd";
import { useEffect, useMemo, useRef, useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Loaded, Problem } from "../../components/bits";
import { ListTable } from "../../components/Pager";
import { formatBytes, formatCount, NONE } from "../../lib/format";
import { formatOf, type Item, kindsOf, MAX_FILE_BYTES, readFile } from "../../lib/resourcefile";
import { importItems, type Progress } from "../../lib/resourceimport";
import { useClients } from "../../session";
import { useResourceTypes } from "./shared";

interface File {
  name: string;
  items: Item[];
}

export function ImportDrawer() {
  const types = useResourceTypes();
  return <Loaded query={types}>{(list) => <Importer kinds={kindsOf(list)} />}</Loaded>;
}

function Importer({ kinds }: { kinds: ReturnType<typeof kindsOf> }) {
  const { t } = useTranslation();
  const { resources } = useClients();
  const client = useQueryClient();
  const [file, setFile] = useState<File>();
  const [large, setLarge] = useState(0);
  const [progress, setProgress] = useState<Progress>();
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const run = useMutation({
    mutationFn: async ({ items, dryRun }: { items: Item[]; dryRun: boolean }) => {
      stop.current = new AbortController();
      const { signal } = stop.current;
      setProgress(undefined);
      const end = await importItems(
        items,
        (list, dry) => resources.applyResources({ resources: list, dryRun: dry }, call(signal)),
        dryRun,
        setProgress,
        signal,
      );
      setProgress(end);
      return { dryRun };
    },
    onSettled: () => client.invalidateQueries({ queryKey: ["resources"] }),
  });
  const take = async (chosen: Blob & { name: string }) => {
    stop.current.abort();
    run.reset();
    setProgress(undefined);
    setLarge(chosen.size > MAX_FILE_BYTES ? chosen.size : 0);
    if (chosen.size > MAX_FILE_BYTES) {
      setFile(undefined);
      return;
    }
    const items = readFile(formatOf(chosen.name), await chosen.text(), kinds);
    setFile({ name: chosen.name, items });
    if (items.length > 0) run.mutate({ items, dryRun: true });
  };
  const checked = run.data?.dryRun === true && progress !== undefined;
  const written = run.data?.dryRun === false && progress !== undefined;
  const changes = progress ? progress.created + progress.updated : 0;
  return (
    <>
      <p className="yh-muted">{t("registry.importHelp")}</p>
      <Upload
        accept=".yaml,.yml,.json,.csv"
        maxCount={1}
        showUploadList={false}
        beforeUpload={(f) => {
          void take(f);
          return false;
        }}
      >
        <Button icon={<UploadOutlined aria-hidden />} disabled={run.isPending && !run.variables.dryRun}>
          {t("form.fromFile")}
        </Button>
      </Upload>
      {large > 0 && (
        <Alert
          className="yh-after-bars"
          type="error"
          showIcon
          title={t("registry.tooLarge", { size: formatBytes(large), limit: formatBytes(MAX_FILE_BYTES) })}
        />
      )}
      {file && (
        <div className="yh-after-bars">
          <p aria-live="polite" data-testid="import-file">
            <b>{file.name}</b> ·{" "}
            {t("registry.inFile", { count: file.items.length, shown: formatCount(file.items.length) })}
          </p>
          {run.isPending && (
            <Bar
              percent={Math.floor((100 * doneOf(progress)) / Math.max(1, file.items.length))}
              status="active"
              aria-label={t(run.variables.dryRun ? "registry.checking" : "registry.importing")}
            />
          )}
          {progress && (
            <p aria-live="polite" data-testid="import-sum">
              {t(run.variables?.dryRun ? "registry.would" : "registry.did", {
                created: formatCount(progress.created),
                updated: formatCount(progress.updated),
                unchanged: formatCount(progress.unchanged),
                refused: formatCount(progress.refused),
              })}
            </p>
          )}
          {run.error && !stop.current.signal.aborted && <Problem error={run.error} />}
          {run.isError && stop.current.signal.aborted && (
            <Alert type="info" showIcon className="yh-problem" title={t("registry.importStopped")} />
          )}
          <div className="yh-row">
            {checked && changes > 0 && (
              <Button
                type="primary"
                onClick={() => run.mutate({ items: file.items, dryRun: false })}
                data-testid="import-run"
              >
                {t("registry.importRun", { shown: formatCount(changes) })}
              </Button>
            )}
            {run.isPending && <Button onClick={() => stop.current.abort()}>{t("common.cancel")}</Button>}
            {written && progress.refused === 0 && <Alert type="success" showIcon title={t("registry.importDone")} />}
          </div>
          <Problems items={file.items} progress={progress} />
        </div>
      )}
    </>
  );
}

const doneOf = (p: Progress | undefined) => (p ? p.created + p.updated + p.unchanged + p.refused : 0);

interface Row {
  key: string;
  line: number;
  id: string;
  field: string;
  text: string;
}

function Problems({ items, progress }: { items: Item[]; progress?: Progress }) {
  const { t } = useTranslation();
  const rows = useMemo(() => {
    const own = items.flatMap((item, k) =>
      item.problems.map(
        (p, n): Row => ({
          key: `${k}/${n}`,
          line: p.line,
          id: item.resource.resourceId,
          field: p.field,
          text: t(`registry.problems.${p.code}`, { got: p.got }),
        }),
      ),
    );
    const theirs = (progress?.refusals ?? []).map(
      (r, n): Row => ({ key: `r${n}`, line: r.line, id: r.resourceId, field: r.field, text: r.problem }),
    );
    return [...own, ...theirs].sort((a, b) => a.line - b.line);
  }, [items, progress, t]);
  if (rows.length === 0) return null;
  return (
    <ListTable
      className="yh-after-bars"
      rowKey="key"
      dataSource={rows}
      data-testid="import-problems"
      scroll={{ x: 620 }}
      columns={[
        { title: t("registry.line"), dataIndex: "line", width: 70, align: "right" },
        { title: t("registry.id"), dataIndex: "id", width: 150, ellipsis: true, render: (id: string) => id || NONE },
        { title: t("registry.field"), dataIndex: "field", width: 160, render: (f: string) => <code>{f || NONE}</code> },
        { title: t("registry.problem"), dataIndex: "text" },
      ]}
    />
  );
}
