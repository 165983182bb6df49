import { expect, test } from "vitest";
import { AllocationState, OperationKind, OperationState } from "../gen/yunhe/control/v1/control_pb";
import {
  ALLOCATION_STATES,
  allocationStateName,
  amountsOf,
  isOver,
  OPERATION_KINDS,
  operationKindName,
  operationStateName,
  typedAmounts,
} from "./control";

test("amounts are read by people, the common ones first", () => {
  const list = amountsOf({ "example.com/x": "2", memory: "8Gi", cpu: "1500m", gpu: "16", odd: "many" });
  expect(list.map((a) => `${a.name} ${a.text}`)).toEqual([
    "cpu 1.5",
    "memory 8 GiB",
    "gpu 16",
    "example.com/x 2",
    "odd many",
  ]);
  expect(list[4]?.value).toBeUndefined();
});

test("amounts are typed as name=quantity", () => {
  expect(typedAmounts(["cpu=4", " memory = 8Gi "])).toEqual({ cpu: "4", memory: "8Gi" });
  for (const wrong of ["cpu", "cpu=", "=4", "cpu=four"]) expect(typedAmounts([wrong]), wrong).toBeUndefined();
});

test("every state and kind has a name of its own", () => {
  const values = (e: object) => Object.values(e).filter((v) => typeof v === "number");
  expect(new Set(values(AllocationState).map(allocationStateName)).size).toBe(values(AllocationState).length);
  expect(new Set(values(OperationState).map(operationStateName)).size).toBe(values(OperationState).length);
  expect(new Set(values(OperationKind).map(operationKindName)).size).toBe(values(OperationKind).length);
  expect(ALLOCATION_STATES.length).toBe(values(AllocationState).length - 1);
  expect(OPERATION_KINDS.length).toBe(values(OperationKind).length - 1);
  expect(isOver(AllocationState.GRANTED)).toBe(false);
  expect(isOver(AllocationState.EXPIRED)).toBe(true);
});
