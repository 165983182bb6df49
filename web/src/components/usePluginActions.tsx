// What administrators and operators do to plug-ins and their instances. What
// stops something asks first, and says what stops.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App } from "antd";
import { useTranslation } from "react-i18next";
import { call } from "../api";
import type { Instance } from "../gen/yunhe/adapters/v1/adapters_pb";
import { messageOf } from "../lib/errors";
import { GATEWAY } from "../lib/plugins";
import { useClients } from "../session";

/**
 * Says what came of a call and marks what plug-ins and centers show as stale;
 * not the plug-in that is gone, whose page is about to be left.
 */
function usePluginMutation<V>(run: (value: V) => Promise<unknown>, done: (value: V) => string, gone = false) {
  const { message } = App.useApp();
  const client = useQueryClient();
  return useMutation({
    mutationFn: run,
    onSuccess: async (_, value) => {
      void message.success(done(value));
      await Promise.all([
        client.invalidateQueries({ queryKey: ["plugins"], exact: gone }),
        client.invalidateQueries({ queryKey: ["centers"] }),
        client.invalidateQueries({ queryKey: ["gateways"] }),
      ]);
    },
    onError: (error) => void message.error(messageOf(error)),
  });
}

export interface PluginActions {
  restart: (plugin: string) => void;
  removePlugin: (plugin: string, then: () => void) => void;
  setEnabled: (instance: Instance, enabled: boolean) => void;
  disconnect: (instance: Instance, then?: () => void) => void;
}

export function usePluginActions(): PluginActions {
  const { t } = useTranslation();
  const { modal } = App.useApp();
  const { adapters } = useClients();

  const restart = usePluginMutation(
    (name: string) => adapters.restartPlugin({ name }, call()),
    (name) => t("plugin.restarted", { name }),
  );
  const remove = usePluginMutation(
    (name: string) => adapters.deletePlugin({ name }, call()),
    (name) => t("plugin.removed", { name }),
    true,
  );
  const enable = usePluginMutation(
    ({ instance, enabled }: { instance: Instance; enabled: boolean }) =>
      adapters.updateInstance({ plugin: instance.plugin, aiCenterId: instance.aiCenterId, enabled }, call()),
    ({ instance, enabled }) => t(enabled ? "plugin.enabled" : "plugin.disabled", { center: instance.aiCenterId }),
  );
  const disconnect = usePluginMutation(
    (instance: Instance) =>
      instance.plugin === GATEWAY
        ? adapters.removeGateway({ aiCenterId: instance.aiCenterId }, call())
        : adapters.deleteInstance({ plugin: instance.plugin, aiCenterId: instance.aiCenterId }, call()),
    (instance) => t("plugin.disconnected", { center: instance.aiCenterId }),
  );

  const ask = (title: string, content: string, okText: string, act: () => Promise<unknown>) =>
    void modal.confirm({
      title,
      content,
      okText,
      okButtonProps: { danger: true },
      onOk: () => act().catch(() => undefined),
    });

  return {
    restart: (name) =>
      ask(t("plugin.restartTitle", { name }), t("plugin.restartHelp"), t("plugin.restart"), () =>
        restart.mutateAsync(name),
      ),
    removePlugin: (name, then) =>
      ask(t("plugin.removeTitle", { name }), t("plugin.removeHelp"), t("common.remove"), () =>
        remove.mutateAsync(name).then(then),
      ),
    setEnabled: (instance, enabled) => {
      if (enabled) {
        enable.mutate({ instance, enabled });
        return;
      }
      ask(t("plugin.disableTitle", { center: instance.aiCenterId }), t("plugin.disableHelp"), t("plugin.disable"), () =>
        enable.mutateAsync({ instance, enabled }),
      );
    },
    disconnect: (instance, then) =>
      ask(
        t("plugin.disconnectTitle", { center: instance.aiCenterId }),
        t(instance.plugin === GATEWAY ? "plugin.removeGatewayHelp" : "plugin.disconnectHelp"),
        t("plugin.disconnect"),
        () => disconnect.mutateAsync(instance).then(then),
      ),
  };
}
