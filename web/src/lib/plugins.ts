// Plug-ins, their instances, and what their states look like.
import type { Gateway, Instance, Plugin } from "../gen/yunhe/adapters/v1/adapters_pb";
import { PluginSource } from "../gen/yunhe/adapters/v1/adapters_pb";
import type { Tone } from "./states";

/** The plug-in whose instances are the compute gateways. */
export const GATEWAY = "gateway";

/** States of instances, from the best to the worst. */
export const INSTANCE_STATES = ["up", "standby", "disabled", "starting", "trouble", "down"] as const;
export type InstanceState = (typeof INSTANCE_STATES)[number];

const TONES: Record<InstanceState | "idle", Tone> = {
  up: "good",
  standby: "active",
  disabled: "neutral",
  starting: "waiting",
  trouble: "warn",
  down: "bad",
  idle: "neutral",
};

/** The state of an instance or a plug-in if it is one the console knows. */
export function knownState(state: string): InstanceState | "idle" | undefined {
  return Object.hasOwn(TONES, state) ? (state as InstanceState | "idle") : undefined;
}

export function pluginTone(state: string): Tone {
  const known = knownState(state);
  return known ? TONES[known] : "neutral";
}

export const PARTS = ["account", "data", "resource", "job", "image", "storage"] as const;

/** What a plug-in's source is called in texts. */
export function sourceName(source: PluginSource): "builtIn" | "configured" | "registered" | "unknown" {
  switch (source) {
    case PluginSource.BUILT_IN:
      return "builtIn";
    case PluginSource.CONFIGURED:
      return "configured";
    case PluginSource.REGISTERED:
      return "registered";
    default:
      return "unknown";
  }
}

/** Whether centers are connected through it with a configuration; others join or are registered by address. */
export function isConnectable(plugin: Pick<Plugin, "name" | "source">): boolean {
  return plugin.name !== GATEWAY && plugin.source !== PluginSource.REGISTERED;
}

/** Names an instance also before it knows its center. */
export function instanceKey(instance: Instance): string {
  return `${instance.plugin}@${instance.endpoint}@${instance.aiCenterId}`;
}

/** The instance that serves a center, and how many stand by; undefined if none is for it. */
export function servingOf(list: Instance[], centerId: string): { instance: Instance; standby: number } | undefined {
  const here = list.filter((i) => i.aiCenterId === centerId);
  const instance = here.find((i) => i.state !== "standby") ?? here[0];
  return instance && { instance, standby: here.filter((i) => i !== instance && i.state === "standby").length };
}

/** What connecting a center has come to. */
export type Stage = "pending" | "going" | "done" | "failed";

/**
 * The three things that must come true, in their order: the plug-in answers,
 * its center is reached, the center is in the network.
 */
export function connectStages(instance: Instance | undefined): [plugin: Stage, center: Stage, network: Stage] {
  switch (instance?.state) {
    case "up":
      return ["done", "done", "done"];
    case "standby":
      return ["done", "done", "pending"];
    case "trouble":
      return ["done", "failed", "pending"];
    case "down":
      return ["failed", "pending", "pending"];
    case "disabled":
      return ["pending", "pending", "pending"];
    default:
      return instance?.version ? ["done", "going", "pending"] : ["going", "pending", "pending"];
  }
}

/**
 * The gateway that joined with a token: of those that were not there before,
 * or joined anew since, the one that is connected; that of the center the token
 * is for, if it names one. joinedBefore has joining times by center.
 */
export function joinedWith(
  gateways: readonly Gateway[],
  joinedBefore: ReadonlyMap<string, string>,
  centerId: string,
): Gateway | undefined {
  const fresh = gateways.filter(
    (g) => (centerId === "" || g.aiCenterId === centerId) && joinedBefore.get(g.aiCenterId) !== joinedKey(g),
  );
  return fresh.find((g) => g.connected) ?? fresh[0];
}

/** Tells one joining from the next. */
export function joinedKey(g: Gateway): string {
  return `${g.publicKey} ${g.joinedAt?.seconds ?? 0n}.${g.joinedAt?.nanos ?? 0}`;
}

/** What is wrong with an address of a plug-in, as the platform would refuse it. */
export function isAddress(text: string): boolean {
  if (text.length > 256 || /\s/.test(text)) return false;
  try {
    const url = new URL(text);
    return (
      (url.protocol === "http:" || url.protocol === "https:") &&
      url.username === "" &&
      url.password === "" &&
      /^\/*$/.test(url.pathname)
    );
  } catch {
    return false;
  }
}
