import { expect, test } from "vitest";
import { execPath, inputFrames, keyProtocol, readFrame, resizeFrame, splitCommand } from "./exec";

const bytes = (...n: number[]) => new Uint8Array(n).buffer;
const text = (b: Uint8Array) => new TextDecoder().decode(b);

test("a key becomes the name of a protocol", () => {
  expect(keyProtocol("yk_~~?>")).toBe("base64url.bearer.authorization.yunhe.eWtffn4_Pg");
});

test("a command's address has its parts and the terminal's size", () => {
  expect(execPath("job_1", { taskIndex: 2, replicaIndex: 3 }, ["sh", "-c", "a b&c"], { columns: 80, rows: 24 })).toBe(
    "/v1/jobs/job_1/tasks/2/replicas/3/exec?terminal=true&columns=80&rows=24&command=sh&command=-c&command=a+b%26c",
  );
});

test("input goes in pieces, a size as JSON", () => {
  const frames = inputFrames("x".repeat(100_000));
  expect(frames.map((f) => [f[0], f.length])).toEqual([
    [0, 65537],
    [0, 100_000 - 65536 + 1],
  ]);
  expect(inputFrames("")).toEqual([]);
  const size = resizeFrame(80, 24);
  expect([size[0], text(size.subarray(1))]).toEqual([4, '{"columns":80,"rows":24}']);
});

test("what the platform says is read", () => {
  expect(readFrame(bytes(1, 104, 105))).toEqual({ kind: "output", data: new Uint8Array([104, 105]) });
  expect(readFrame(bytes(2, 33))).toEqual({ kind: "output", data: new Uint8Array([33]) });
  const status = new TextEncoder().encode('\u0003{"exit_code":7}');
  expect(readFrame(status.buffer as ArrayBuffer)).toEqual({ kind: "status", exitCode: 7, error: undefined });
  expect(readFrame(bytes(3, 123))).toEqual({ kind: "unknown" });
  expect(readFrame(bytes(9, 1))).toEqual({ kind: "unknown" });
  expect(readFrame(bytes())).toEqual({ kind: "unknown" });
});

test("a command line is parted as a shell does", () => {
  expect(splitCommand(`sh -c 'echo "a b"' "" x\\ y`)).toEqual(["sh", "-c", 'echo "a b"', "", "x y"]);
  expect(splitCommand("  ")).toEqual([]);
});
