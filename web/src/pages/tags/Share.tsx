// Takes over tags that another platform shares: what would become of each, then all.
import { UploadOutlined } from "@ant-design/icons";
import { fromJson, type JsonValue } from "@bufbuild/protobuf";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Alert, App, Button, Checkbox, Upload } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Problem, Tag } from "../../components/bits";
import { ListTable } from "../../components/Pager";
import { type AdoptedTag, type SharedTags, SharedTagsSchema } from "../../gen/yunhe/tags/v1/tags_pb";
import { messageOf } from "../../lib/errors";
import { NONE } from "../../lib/format";
import { adoptedTone } from "../../lib/tags";
import { useClients } from "../../session";

const KINDS = ["group", "tag", "rule"] as const;
const OUTCOMES = ["created", "replaced", "same", "different", "refused"] as const;

export function Adopt({ onDone }: { onDone: () => void }) {
  const { t } = useTranslation();
  const { tags } = useClients();
  const { message } = App.useApp();
  const client = useQueryClient();
  const [file, setFile] = useState<{ name: string; shared?: SharedTags; problem?: string }>();
  const [replace, setReplace] = useState(false);
  const run = useMutation({
    mutationFn: async (v: { shared: SharedTags; replace: boolean; dryRun: boolean }) =>
      (await tags.adoptTags(v, call())).results,
    onSuccess: async (_, v) => {
      if (v.dryRun) return;
      void message.success(t("tag.adopted"));
      await client.invalidateQueries({ queryKey: ["tags"] });
    },
  });
  const look = (shared: SharedTags, withReplace: boolean) => run.mutate({ shared, replace: withReplace, dryRun: true });
  const take = async (chosen: Blob & { name: string }) => {
    run.reset();
    try {
      const shared = fromJson(SharedTagsSchema, JSON.parse(await chosen.text()) as JsonValue);
      setFile({ name: chosen.name, shared });
      look(shared, replace);
    } catch (error) {
      setFile({ name: chosen.name, problem: messageOf(error) });
    }
  };
  const done = run.data !== undefined && run.variables?.dryRun === false;
  const changes = (run.data ?? []).filter((r) => r.outcome === "created" || r.outcome === "replaced").length;
  const kind = (r: AdoptedTag) => KINDS.find((k) => k === r.kind);
  const outcome = (r: AdoptedTag) => OUTCOMES.find((o) => o === r.outcome);
  return (
    <>
      <p className="yh-help">{t("tag.adoptHelp")}</p>
      <div className="yh-row">
        <Upload
          accept=".json"
          maxCount={1}
          showUploadList={false}
          beforeUpload={(f) => {
            void take(f);
            return false;
          }}
        >
          <Button icon={<UploadOutlined aria-hidden />}>{t("form.fromFile")}</Button>
        </Upload>
        <Checkbox
          checked={replace}
          onChange={(e) => {
            setReplace(e.target.checked);
            if (file?.shared && !done) look(file.shared, e.target.checked);
          }}
        >
          {t("tag.adoptReplace")}
        </Checkbox>
      </div>
      {file?.problem && (
        <Alert
          className="yh-after-bars"
          type="error"
          showIcon
          title={t("tag.notShared", { name: file.name })}
          description={file.problem}
        />
      )}
      {run.error && <Problem error={run.error} />}
      {run.data && (
        <>
          <p className="yh-after-bars" aria-live="polite">
            {t(done ? "tag.adoptDid" : "tag.adoptWould", { name: file?.name ?? "", count: changes })}
          </p>
          <ListTable<AdoptedTag>
            rowKey={(r) => `${r.kind}/${r.id}`}
            dataSource={run.data}
            scroll={{ x: 560 }}
            data-testid="adopted"
            columns={[
              {
                title: t("tag.sharedKind"),
                key: "kind",
                width: 100,
                render: (_, r) => {
                  const k = kind(r);
                  return k ? t(`tag.sharedKinds.${k}`) : r.kind;
                },
              },
              { title: t("registry.id"), dataIndex: "id", ellipsis: true },
              {
                title: t("tag.outcome"),
                key: "outcome",
                width: 150,
                render: (_, r) => {
                  const o = outcome(r);
                  return <Tag tone={adoptedTone(r.outcome)} text={o ? t(`tag.outcomes.${o}`) : r.outcome} />;
                },
              },
              { title: t("tag.outcomeWhy"), key: "message", render: (_, r) => r.message || NONE },
            ]}
          />
          <div className="yh-row yh-after-bars">
            {done ? (
              <Button type="primary" onClick={onDone}>
                {t("common.close")}
              </Button>
            ) : (
              <Button
                type="primary"
                disabled={changes === 0}
                loading={run.isPending}
                onClick={() => file?.shared && run.mutate({ shared: file.shared, replace, dryRun: false })}
                data-testid="adopt"
              >
                {t("tag.adopt")}
              </Button>
            )}
          </div>
        </>
      )}
    </>
  );
}
