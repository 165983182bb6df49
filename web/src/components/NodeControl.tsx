// Takes a node out of use, back into it, or back from those who use it. Each
// is asked for in a dialog that says what will happen.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Alert, App, Button, Checkbox, Input, InputNumber, Modal } from "antd";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import { call, newRequestId } from "../api";
import type { NodeControl as Control } from "../gen/yunhe/control/v1/control_pb";
import type { Node } from "../gen/yunhe/registry/v1/registry_pb";
import { messageOf } from "../lib/errors";
import { useNodeControl } from "../queries";
import { useClients, useSession } from "../session";

type Action = "isolate" | "restore" | "reclaim";

export function NodeControl({ node }: { node: Node }) {
  const { can } = useSession();
  const control = useNodeControl(node.aiCenterId, node.name).data;
  return (
    <>
      {control && <Wanted control={control} />}
      {can("registry.write") && (
        <NodeActions aiCenterId={node.aiCenterId} node={node.name} isolated={control?.isolated ?? false} />
      )}
    </>
  );
}

interface Target {
  aiCenterId: string;
  node: string;
}

/** What can be done with a node, each after a question. */
export function NodeActions(props: Target & { isolated: boolean; small?: boolean }) {
  const { t } = useTranslation();
  const [action, setAction] = useState<Action>();
  const size = props.small ? "small" : undefined;
  return (
    <>
      <div className={props.small ? "yh-row yh-row-end" : "yh-row"} data-testid="node-control">
        {props.isolated ? (
          <Button size={size} onClick={() => setAction("restore")}>
            {t("control.restore")}
          </Button>
        ) : (
          <Button size={size} onClick={() => setAction("isolate")}>
            {t("control.isolate")}
          </Button>
        )}
        <Button size={size} danger onClick={() => setAction("reclaim")}>
          {t("control.reclaim")}
        </Button>
      </div>
      <Modal
        open={action !== undefined}
        onCancel={() => setAction(undefined)}
        footer={null}
        title={action && t(`control.${action}Title`, { node: props.node })}
        destroyOnHidden
      >
        {action && <Ask action={action} target={props} onClose={() => setAction(undefined)} />}
      </Modal>
    </>
  );
}

function Wanted({ control: c }: { control: Control }) {
  const { t } = useTranslation();
  const what = c.isolated ? t("control.isolated") : t("control.held", { allocation: c.allocationId });
  return (
    <Alert
      className="yh-after-bars"
      type={c.applied ? "info" : "warning"}
      showIcon
      title={c.applied ? what : `${what} · ${t("control.notYet")}`}
      description={[c.reason, c.problem].filter(Boolean).join(" · ") || undefined}
    />
  );
}

function Ask({ action, target, onClose }: { action: Action; target: Target; onClose: () => void }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { control } = useClients();
  const client = useQueryClient();
  const [reason, setReason] = useState("");
  const [minutes, setMinutes] = useState(5);
  const [thenFree, setThenFree] = useState(false);
  const write = useMutation({
    mutationFn: () => {
      const at = { aiCenterId: target.aiCenterId, node: target.node, requestId: newRequestId() };
      switch (action) {
        case "isolate":
          return control.isolateResource({ ...at, reason: reason.trim() }, call());
        case "restore":
          return control.restoreResource(at, call());
        case "reclaim":
          return control.reclaimResource(
            { ...at, reason: reason.trim(), graceSeconds: BigInt(Math.round(minutes * 60)), thenFree },
            call(),
          );
      }
    },
    onSuccess: async (operation) => {
      void message.success(operation.message || t("control.asked"));
      onClose();
      await Promise.all([
        client.invalidateQueries({ queryKey: ["nodes"] }),
        client.invalidateQueries({ queryKey: ["node-controls"] }),
        client.invalidateQueries({ queryKey: ["operations"] }),
      ]);
    },
    onError: (e) => void message.error(messageOf(e)),
  });
  return (
    <>
      <p>{t(`control.${action}Help`)}</p>
      {action !== "restore" && (
        <Input
          value={reason}
          maxLength={40}
          placeholder={t("control.reason")}
          aria-label={t("control.reason")}
          onChange={(e) => setReason(e.target.value)}
        />
      )}
      {action === "reclaim" && (
        <div className="yh-row yh-after-bars">
          <span>{t("control.grace")}</span>
          <InputNumber
            min={0}
            max={1440}
            value={minutes}
            aria-label={t("control.grace")}
            onChange={(v) => setMinutes(v ?? 0)}
          />
          <Checkbox checked={thenFree} onChange={(e) => setThenFree(e.target.checked)}>
            {t("control.thenFree")}
          </Checkbox>
        </div>
      )}
      <div className="yh-row yh-after-bars">
        <Button
          type="primary"
          danger={action === "reclaim"}
          loading={write.isPending}
          onClick={() => write.mutate()}
          data-testid="node-control-confirm"
        >
          {t(`control.${action}`)}
        </Button>
        <Button onClick={onClose}>{t("common.cancel")}</Button>
      </div>
    </>
  );
}
