// Errors of the platform as the console shows them. Field violations travel as
// a google.rpc.BadRequest detail; it is decoded here by hand because it is the
// only message of that package the console needs.
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { Code, ConnectError } from "@connectrpc/connect";

/** One wrong input, by its path in the request ("tasks[1].name"). */
export interface Violation {
  field: string;
  description: string;
}

const BAD_REQUEST = "google.rpc.BadRequest";

/** The field violations an error carries, in the server's order. */
export function violationsOf(error: unknown): Violation[] {
  const large = tooLarge(error);
  if (large) return [large];
  if (!(error instanceof ConnectError)) return [];
  const found: Violation[] = [];
  for (const detail of error.details) {
    if ("type" in detail && detail.type === BAD_REQUEST && detail.value instanceof Uint8Array) {
      found.push(...decodeBadRequest(detail.value));
    }
  }
  return found;
}

// Numbers of these types hold no more; a larger one is not even sent.
const MOST: Record<string, string> = { int32: "2147483647", int64: "9223372036854775807" };

/** The number that is too large to be sent, of which Connect tells in a sentence of its own. */
function tooLarge(error: unknown): Violation | undefined {
  if (!(error instanceof Error)) return undefined;
  const found = /cannot encode field \S+\.(\w+) to \w+: invalid (int32|int64): (-?)(\S+)/.exec(error.message);
  const [, field, type, minus, digits] = found ?? [];
  if (!field || !type) return undefined;
  const limit = minus ? `at least -${MOST[type]}` : `at most ${MOST[type]}`;
  return { field, description: `must be ${limit}, got ${minus}${digits}` };
}

function decodeBadRequest(bytes: Uint8Array): Violation[] {
  const reader = new BinaryReader(bytes);
  const found: Violation[] = [];
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === 1 && wire === WireType.LengthDelimited) found.push(decodeViolation(reader.bytes()));
    else reader.skip(wire, field);
  }
  return found;
}

function decodeViolation(bytes: Uint8Array): Violation {
  const reader = new BinaryReader(bytes);
  const violation: Violation = { field: "", description: "" };
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === 1 && wire === WireType.LengthDelimited) violation.field = reader.string();
    else if (field === 2 && wire === WireType.LengthDelimited) violation.description = reader.string();
    else reader.skip(wire, field);
  }
  return violation;
}

/** A path of form fields: names and list indices. */
export type FieldPath = (string | number)[];

/**
 * The path of a violation as form fields are named here: "job.tasks[1].resource_spec_id" is
 * ["tasks", 1, "resourceSpecId"] when "job" is the request field the form edits.
 */
export function fieldPath(field: string, envelope?: string): FieldPath {
  const path: FieldPath = [];
  for (const part of field.matchAll(/\[(?:"([^"]*)"|'([^']*)'|([^\]]*))\]|([^.[\]]+)/g)) {
    const [, doubleQuoted, singleQuoted, index, name] = part;
    if (name !== undefined) path.push(name.replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase()));
    else if (index !== undefined && /^\d+$/.test(index)) path.push(Number(index));
    else path.push(doubleQuoted ?? singleQuoted ?? index ?? "");
  }
  if (envelope !== undefined && path[0] === envelope) path.shift();
  return path;
}

/** Whether the server could not be reached, as against having answered with an error. */
export function isUnreachable(error: unknown): boolean {
  return error instanceof ConnectError && (error.code === Code.Unavailable || error.code === Code.Unknown);
}

/** Whether the caller's key is missing, wrong, revoked or expired. */
export function isUnauthenticated(error: unknown): boolean {
  return error instanceof ConnectError && error.code === Code.Unauthenticated;
}

/** The server's sentence, without the code that Connect puts in front. */
export function messageOf(error: unknown): string {
  const large = tooLarge(error);
  if (large) return `${large.field}: ${large.description}`;
  if (error instanceof ConnectError) return error.rawMessage || Code[error.code] || String(error.code);
  return error instanceof Error ? error.message : String(error);
}
