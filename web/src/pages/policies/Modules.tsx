// WebAssembly modules that filter or score centers.
import { UploadOutlined } from "@ant-design/icons";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { App, Button, Input, Popconfirm, Table, Upload } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call } from "../../api";
import { Loaded, Moment, Nothing, Problem, Tag } from "../../components/bits";
import type { PolicyModule } from "../../gen/yunhe/policies/v1/policies_pb";
import { messageOf } from "../../lib/errors";
import { formatBytes, NONE } from "../../lib/format";
import { useClients, useSession } from "../../session";

export function Modules() {
  const { t } = useTranslation();
  const { policies } = useClients();
  const { can } = useSession();
  const { message } = App.useApp();
  const client = useQueryClient();
  const [id, setId] = useState("");
  const modules = useQuery({
    queryKey: ["policies", "modules"],
    queryFn: async ({ signal }) => (await policies.listPolicyModules({}, call(signal))).modules,
    refetchInterval: 5000,
  });
  const done = () => client.invalidateQueries({ queryKey: ["policies", "modules"] });
  const upload = useMutation({
    mutationFn: async (file: Blob) =>
      policies.uploadPolicyModule({ moduleId: id.trim(), code: new Uint8Array(await file.arrayBuffer()) }, call()),
    onSuccess: async (m) => {
      void message.success(t("record.uploaded", { module: `${m.moduleId}@${m.version}` }));
      setId("");
      await done();
    },
  });
  const act = useMutation({
    mutationFn: async ({ of: m, restore }: { of: PolicyModule; restore: boolean }) => {
      const at = { moduleId: m.moduleId, version: m.version };
      if (restore) await policies.restorePolicyModule(at, call());
      else await policies.deletePolicyModule(at, call());
    },
    onSuccess: done,
    onError: (e) => void message.error(messageOf(e)),
  });
  const write = can("scheduler.write");
  return (
    <>
      <div className="yh-pad">
        <p className="yh-muted">{t("record.modulesHelp")}</p>
        {write && (
          <div className="yh-row">
            <Input
              className="yh-w-240"
              value={id}
              maxLength={32}
              placeholder={t("registry.id")}
              aria-label={t("record.moduleId")}
              onChange={(e) => setId(e.target.value)}
            />
            <Upload
              accept=".wasm"
              showUploadList={false}
              disabled={id.trim() === ""}
              beforeUpload={(f) => {
                upload.mutate(f);
                return false;
              }}
            >
              <Button icon={<UploadOutlined aria-hidden />} disabled={id.trim() === ""} loading={upload.isPending}>
                {t("record.upload")}
              </Button>
            </Upload>
          </div>
        )}
        {upload.error && <Problem error={upload.error} />}
      </div>
      <Loaded query={modules} rows={4}>
        {(list) => (
          <Table
            size="small"
            rowKey={(m) => `${m.moduleId}@${m.version}`}
            dataSource={list}
            tableLayout="fixed"
            scroll={{ x: 1000 }}
            pagination={false}
            locale={{ emptyText: <Nothing text={t("record.noModules")} /> }}
            columns={[
              {
                title: t("record.module"),
                key: "module",
                width: 220,
                ellipsis: true,
                render: (_, m) => (
                  <b>
                    {m.moduleId}@{m.version.toString()}
                  </b>
                ),
              },
              {
                title: t("registry.state"),
                key: "state",
                width: 220,
                ellipsis: true,
                render: (_, m) => (
                  <span title={m.fault}>
                    <Tag
                      tone={m.isolated ? "bad" : "good"}
                      text={t(m.isolated ? "record.moduleIsolated" : "record.moduleRuns")}
                    />
                    {m.fault && <small className="yh-reason">{m.fault}</small>}
                  </span>
                ),
              },
              {
                title: t("record.usedFor"),
                key: "use",
                width: 150,
                render: (_, m) =>
                  [m.filters && t("record.filters"), m.scores && t("record.scores")].filter(Boolean).join(", ") || NONE,
              },
              {
                title: t("record.size"),
                key: "size",
                width: 90,
                align: "right",
                render: (_, m) => formatBytes(m.sizeBytes),
              },
              {
                title: "SHA-256",
                key: "sha",
                ellipsis: true,
                render: (_, m) => <code>{m.sha256}</code>,
              },
              { title: t("common.created"), key: "created", width: 132, render: (_, m) => <Moment at={m.createdAt} /> },
              ...(write
                ? [
                    {
                      key: "actions",
                      width: 170,
                      align: "right" as const,
                      render: (_: unknown, m: PolicyModule) => (
                        <div className="yh-row yh-row-end">
                          {m.isolated && (
                            <Button size="small" onClick={() => act.mutate({ of: m, restore: true })}>
                              {t("control.restore")}
                            </Button>
                          )}
                          <Popconfirm
                            title={t("record.deleteModule", { module: `${m.moduleId}@${m.version}` })}
                            okText={t("common.delete")}
                            okButtonProps={{ danger: true }}
                            onConfirm={() => act.mutateAsync({ of: m, restore: false }).catch(() => undefined)}
                          >
                            <Button size="small" type="text" danger>
                              {t("common.delete")}
                            </Button>
                          </Popconfirm>
                        </div>
                      ),
                    },
                  ]
                : []),
            ]}
          />
        )}
      </Loaded>
    </>
  );
}
