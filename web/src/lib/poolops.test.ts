// What a form for several nodes shows and changes.
import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { LogLevel, PoolNodeComponentsSchema } from "../gen/yunhe/pool/v1/operation_pb";
import { configChange, configInCommon } from "./poolops";

const node = (logLevel: LogLevel, idleLimitSeconds: bigint) =>
  create(PoolNodeComponentsSchema, { config: { logLevel, idleLimitSeconds, runLimitSeconds: 7n } });

describe("configuration of nodes", () => {
  test("of one, and what is alike of several", () => {
    expect(configInCommon([node(LogLevel.WARN, 5n)])).toEqual({
      logLevel: LogLevel.WARN,
      idleLimitSeconds: 5,
      runLimitSeconds: 7,
    });
    // A level that nobody chose is info.
    expect(configInCommon([node(LogLevel.UNSPECIFIED, 5n), node(LogLevel.INFO, 6n)])).toEqual({
      logLevel: LogLevel.INFO,
      idleLimitSeconds: undefined,
      runLimitSeconds: 7,
    });
  });

  test("only what is edited changes", () => {
    const was = { logLevel: undefined, idleLimitSeconds: undefined, runLimitSeconds: 7 };
    expect(configChange(was, was)).toBeUndefined();
    expect(configChange(was, { ...was, idleLimitSeconds: null })).toBeUndefined();
    expect(configChange(was, { ...was, idleLimitSeconds: 0 })).toEqual({ idleLimitSeconds: 0n });
    expect(configChange(was, { ...was, runLimitSeconds: null })).toEqual({ runLimitSeconds: 0n });
    expect(configChange(was, { ...was, logLevel: LogLevel.DEBUG })).toEqual({ logLevel: LogLevel.DEBUG });
  });
});
