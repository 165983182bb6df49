// What the pages of the accelerator pool share.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { App } from "antd";
import { messageOf } from "./errors";

export const EVERY_MS = 3000;
export const MIB = 2n ** 20n;

/** A share of a device's time. */
export const share = (percent: bigint, weighted: boolean, weight: string) =>
  weighted ? `${percent} % ${weight}` : `${percent} %`;

/** Does something to the pool, and has what shows it read again. */
export function useChange<T>(change: (x: T) => Promise<unknown>) {
  const client = useQueryClient();
  const { message } = App.useApp();
  return useMutation({
    mutationFn: change,
    onSuccess: () => client.invalidateQueries({ queryKey: ["pool"] }),
    onError: (e) => void message.error(messageOf(e)),
  });
}
