import { expect, test } from "vitest";
import { EquipmentState, PortState } from "../gen/yunhe/adapter/v1/adapter_pb";
import { EquipmentRule_Kind } from "../gen/yunhe/network/v1/equipment_pb";
import { equipmentRule, equipmentState, leadsTo, percentOf, portState } from "./equipment";

const numbers = <T extends object>(e: T) => Object.values(e).filter((k): k is number => typeof k === "number");

test("every state and every rule has a name of its own", () => {
  expect(new Set(numbers(EquipmentState).map((s) => equipmentState(s).name)).size).toBe(6);
  expect(new Set(numbers(PortState).map((s) => portState(s).name)).size).toBe(4);
  expect(new Set(numbers(EquipmentRule_Kind).map((k) => equipmentRule(k).name)).size).toBe(8);
  expect(equipmentState(77 as EquipmentState).name).toBe("unknown");
});

test("rates are shown in percent, and ports by what they lead to", () => {
  expect([0n, 100n, 12_345n, 1_000_000n].map(percentOf)).toEqual(["", "0.01%", "1.234%", "100%"]);
  expect(leadsTo({ peerEquipment: "spine-1", peerPort: "7", peerNode: "" })).toBe("spine-1:7");
  expect(leadsTo({ peerEquipment: "spine-1", peerPort: "", peerNode: "" })).toBe("spine-1");
  expect(leadsTo({ peerEquipment: "", peerPort: "", peerNode: "n1" })).toBe("n1");
});
